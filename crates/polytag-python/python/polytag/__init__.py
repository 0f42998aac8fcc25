"""Tag any text with the right labels out of a very large label set that keeps changing.

    >>> import polytag
    >>> model = polytag.fit((["Trading tea by sea", "A law on bees"], [["tea"], ["bee"]]), method="lexical")
    >>> model.tag(["Green tea and black tea"], k=1)[0][0].id
    'tea'

:func:`load` reads a model folder, :func:`fit` learns one from documents and labels, :func:`evaluate` measures it.
``polytag.sklearn`` has an estimator for scikit-learn, ``polytag.spark`` tags the frames of Spark.
"""

from ._errors import InputError, InputTypeError, InternalError, ModelError, PolytagError, PolytagWarning
from ._model import Model, evaluate, fit, load
from ._native import METHODS, Tagged, TaggedStream, __version__
from ._types import Explanation, Label, Mark, Reason, Tag

__all__ = [
    "METHODS",
    "Explanation",
    "InputError",
    "InputTypeError",
    "InternalError",
    "Label",
    "Mark",
    "Model",
    "ModelError",
    "PolytagError",
    "PolytagWarning",
    "Reason",
    "Tag",
    "Tagged",
    "TaggedStream",
    "__version__",
    "evaluate",
    "fit",
    "load",
]

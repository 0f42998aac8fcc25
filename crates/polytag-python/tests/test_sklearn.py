"""The estimator: scikit-learn's own checks, and what they do not know of."""

from __future__ import annotations

import pickle
import warnings

import pytest

import polytag

numpy = pytest.importorskip("numpy")
sklearn = pytest.importorskip("sklearn", minversion="1.6")

from sklearn.base import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import Pipeline  # noqa: E402
from sklearn.preprocessing import FunctionTransformer  # noqa: E402
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator  # noqa: E402
from sklearn.utils.validation import check_is_fitted, validate_data  # noqa: E402

from polytag.sklearn import PolytagClassifier  # noqa: E402

TEXTS = ["green tea and black tea", "the law of the sea", "bees make honey", "a tax on honey", "tea from a sea port", "tax law"] * 6
LISTS = [["tea"], ["law", "sea"], ["bee"], ["bee", "law"], ["tea", "sea"], ["law"]] * 6
ONE = ["tea", "law", "bee", "bee", "tea", "law"] * 6


class OnRows(PolytagClassifier):
    """Reads rows of numbers as texts, a word for each column and each tenth of a standard deviation or so, so that the checks,
    which know rows of numbers only, have something to say about the estimator."""

    def _words(self, X):
        return [" ".join(f"c{column}v{round(value * 4)}x" for column, value in enumerate(row)) for row in X]

    def fit(self, X, y):
        if y is not None:
            X, y = validate_data(self, X, y, multi_output=True, dtype="numeric")
        return super().fit(self._words(X), y)

    def predict(self, X):
        check_is_fitted(self)
        return super().predict(self._words(validate_data(self, X, reset=False)))

    def predict_proba(self, X):
        check_is_fitted(self)
        return super().predict_proba(self._words(validate_data(self, X, reset=False)))

    def score(self, X, y, sample_weight=None):
        from sklearn.metrics import accuracy_score

        return accuracy_score(y, self.predict(X), sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.one_d_array, tags.input_tags.string = True, False, False
        return tags


def test_scikit_learns_checks_pass_as_far_as_they_know_texts():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(PolytagClassifier())


def checks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(estimator_checks_generator(OnRows(threads=1), legacy=True, mark=None))


@pytest.mark.parametrize(("estimator", "check"), checks(), ids=lambda value: getattr(getattr(value, "func", None), "__name__", ""))
def test_scikit_learns_checks_pass_on_rows_written_as_words(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_one_label_a_text():
    classifier = PolytagClassifier().fit(TEXTS, ONE)
    assert list(classifier.classes_) == ["bee", "law", "tea"]
    assert list(classifier.predict(["honey from bees", "black tea"])) == ["bee", "tea"]
    chances = classifier.predict_proba(TEXTS)
    assert chances.shape == (36, 3) and numpy.allclose(chances.sum(axis=1), 1)
    assert classifier.score(TEXTS, ONE) > 0.9
    # Nothing speaks for any label.
    assert classifier.predict(["zzz"])[0] in classifier.classes_


def test_numbers_are_labels_too():
    numbers = numpy.array([3 if label == "tea" else 10 for label in ONE])
    found = PolytagClassifier().fit(TEXTS, numbers).predict(["green tea", "tax law"])
    assert found.dtype == numbers.dtype and list(found) == [3, 10]


def test_lists_of_labels():
    classifier = PolytagClassifier().fit(TEXTS, LISTS)
    assert list(classifier.classes_) == ["bee", "law", "sea", "tea"]
    found = classifier.predict(["tea from a sea port", "green tea and black tea"])
    assert [sorted(row) for row in found] == [["sea", "tea"], ["tea"]]
    assert classifier.score(TEXTS, LISTS) > 0.9
    assert classifier.score(TEXTS[:1], [["never heard of"]]) == 0


def test_labels_that_no_text_carries():
    meanings = {"tea": "tea", "bee": "bees", "law": "law", "sea": "sea", "rail": {"name": "railway", "aliases": ["train"]}}
    classifier = PolytagClassifier("lexical", label_texts=meanings, k=1).fit(TEXTS, LISTS)
    assert classifier.predict(["a train to the coast"]) == [["rail"]]
    assert not hasattr(classifier, "predict_proba")
    with pytest.raises(AttributeError) as raised:
        classifier.predict_proba(TEXTS)
    assert "rank labels and are no probabilities" in str(raised.value.__cause__)
    # Texts had one and a half on average.
    usual = PolytagClassifier("lexical", label_texts=meanings).fit(TEXTS, LISTS)
    assert max(len(row) for row in usual.predict(TEXTS)) == 2
    with pytest.raises(ValueError, match="no text carries the label 'rail'"):
        PolytagClassifier(label_texts={"tea": "tea", "rail": "railway"}).fit(TEXTS, ONE)


def test_matrices_of_labels():
    sparse = pytest.importorskip("scipy.sparse")
    pandas = pytest.importorskip("pandas")
    names = ["tea", "law", "sea", "bee"]
    matrix = numpy.array([[int(name in row) for name in names] for row in LISTS])
    classifier = PolytagClassifier(label_texts=dict(enumerate(names))).fit(TEXTS, matrix)
    found = classifier.predict(TEXTS)
    assert found.shape == matrix.shape and (found == matrix).mean() > 0.95
    assert classifier.score(TEXTS, matrix) > 0.9
    assert classifier.predict_proba(TEXTS[:2]).shape == (2, 4)
    for other in (sparse.csr_matrix(matrix), sparse.coo_array(matrix), pandas.DataFrame(matrix, columns=names), matrix.tolist()):
        again = PolytagClassifier(label_texts=dict(enumerate(names))).fit(TEXTS, other)
        assert (again.predict(TEXTS) == found).all(), type(other)


def test_columns_of_texts():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    expected = list(PolytagClassifier().fit(TEXTS, ONE).predict(TEXTS[:6]))
    for column in (pandas.Series(TEXTS), polars.Series(TEXTS), numpy.array(TEXTS)):
        assert list(PolytagClassifier().fit(column, ONE).predict(column[:6])) == expected


def test_a_pickle_holds_the_model():
    classifier = PolytagClassifier().fit(TEXTS, LISTS)
    expected, folder = classifier.predict(TEXTS), classifier.model_.path
    packed = pickle.dumps(classifier)
    del classifier
    assert not folder.exists()
    again = pickle.loads(packed)
    assert again.predict(TEXTS) == expected and again.model_.path != folder
    assert clone(again).get_params() == again.get_params()


def test_it_works_in_pipelines_and_searches():
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    pipeline = Pipeline([("lower", lower), ("tags", PolytagClassifier())])
    assert pipeline.fit([text.upper() for text in TEXTS], ONE).score(TEXTS, ONE) > 0.9
    assert cross_val_score(PolytagClassifier(), TEXTS, ONE, cv=3).mean() > 0.9
    search = GridSearchCV(PolytagClassifier("lexical"), {"settings": [{}, {"ngrams": 1}]}, cv=2)
    assert search.fit(TEXTS, ONE).best_score_ > 0.3


@pytest.mark.parametrize(
    ("texts", "labels", "words"),
    [
        ([], [], "no text"),
        (TEXTS, None, "requires y"),
        (TEXTS, ONE[:-1], "36 texts and 35 rows"),
        ([1.5] * 36, ONE, r"texts\[0\] is of type float"),
        ("text", ["a"], "a list is expected"),
        (TEXTS, [0.5] * 35 + [0.7], "(?i)continuous"),
        (TEXTS, [""] * 18 + ["x"] * 18, "none be empty"),
    ],
)
def test_what_cannot_be_learned_from_is_named(texts, labels, words):
    with pytest.raises(ValueError, match=words):
        PolytagClassifier().fit(texts, labels)


def test_what_is_not_fitted_cannot_answer():
    with pytest.raises(NotFittedError):
        PolytagClassifier().predict(TEXTS)
    assert issubclass(polytag.InputTypeError, TypeError)

//! What was done, so that it can be gone back over.
//!
//! An op takes [`Var`]s and gives one. A value lives as long as somebody holds it: the op that needs
//! it again on the way back, or the caller. The tape itself only holds what the way back needs, and
//! only where a gradient is wanted: with [`Tape::inference`] nothing is recorded at all.

use crate::element::Element;
use crate::error::Error;
use crate::op;
use crate::parameters::{ParameterId, Parameters};
use crate::random::{Dropout, Key};
use crate::tensor::Tensor;

/// A value, and where its gradient goes.
#[derive(Clone, Debug)]
pub struct Var {
    tensor: Tensor,
    link: Link,
}

/// Where a gradient goes: to the op that made the value, or nowhere.
pub(crate) type Link = Option<usize>;

impl Var {
    /// A value that needs no gradient.
    pub fn constant(tensor: Tensor) -> Var {
        Var { tensor, link: None }
    }

    /// The value.
    pub fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Where its gradient goes.
    pub(crate) fn link(&self) -> Link {
        self.link
    }
}

/// The way back through an op.
pub(crate) trait Backward {
    /// What the op is called in messages.
    fn name(&self) -> &'static str;

    /// Turns the gradient of what the op gave into gradients of what it took.
    fn backward(self: Box<Self>, gradient: Tensor, flow: &mut Flow<'_>) -> Result<(), Error>;
}

/// The record of a forward pass.
pub struct Tape<'a> {
    parameters: &'a Parameters,
    recorded: Option<Vec<Option<Box<dyn Backward>>>>,
    dropout: Option<Key>,
    drops: u64,
}

impl<'a> Tape<'a> {
    /// A pass that nobody will go back over.
    pub fn inference(parameters: &'a Parameters) -> Tape<'a> {
        Tape { parameters, recorded: None, dropout: None, drops: 0 }
    }

    /// A pass that is recorded, with dropout masks that are a function of `key`.
    pub fn training(parameters: &'a Parameters, key: Key) -> Tape<'a> {
        Tape { parameters, recorded: Some(Vec::new()), dropout: Some(key), drops: 0 }
    }

    /// The weights.
    pub fn parameters(&self) -> &'a Parameters {
        self.parameters
    }

    /// Whether nobody will go back over the pass.
    pub(crate) fn is_inference(&self) -> bool {
        self.recorded.is_none()
    }

    /// The next dropout: none when nothing is recorded or nothing is to be dropped.
    pub(crate) fn next_dropout(&mut self, rate: f32) -> Option<Dropout> {
        self.drops += 1;
        self.dropout.and_then(|key| Dropout::new(rate, key.part(self.drops)))
    }

    /// Whether the way back is wanted for an op over these inputs and weights.
    pub(crate) fn wants(&self, inputs: &[&Var], weights: &[ParameterId]) -> bool {
        self.recorded.is_some()
            && (inputs.iter().any(|input| input.link.is_some())
                || weights.iter().any(|&id| self.parameters.info(id).trained))
    }

    /// A value that needs no way back, or one with the way back through `op`.
    pub(crate) fn push(&mut self, tensor: Tensor, op: Option<Box<dyn Backward>>) -> Var {
        let link = match (&mut self.recorded, op) {
            (Some(recorded), Some(op)) => {
                recorded.push(Some(op));
                Some(recorded.len() - 1)
            }
            _ => None,
        };
        Var { tensor, link }
    }

    /// A value whose gradient is wanted at the end, such as an input in a test.
    pub fn leaf(&mut self, tensor: Tensor) -> Var {
        let link = self.recorded.as_mut().map(|recorded| {
            recorded.push(None);
            recorded.len() - 1
        });
        Var { tensor, link }
    }

    /// What was recorded. The weights are free again to take gradients.
    pub fn finish(self) -> Record {
        Record { ops: self.recorded.unwrap_or_default() }
    }
}

/// What was recorded of a forward pass.
pub struct Record {
    ops: Vec<Option<Box<dyn Backward>>>,
}

/// How a way back is gone.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackwardOptions {
    /// Whether every gradient is looked at, to name the op that makes one that is not finite. Slow.
    pub checked: bool,
}

impl Record {
    /// Adds the gradient of the weighted sum of `losses`, each a single number, to the weights'
    /// gradients, and gives the gradients of the leaves.
    pub fn backward(
        self,
        losses: &[(&Var, f32)],
        parameters: &mut Parameters,
        options: BackwardOptions,
    ) -> Result<LeafGradients, Error> {
        parameters.begin_gradients()?;
        let count = self.ops.len();
        let mut gradients = Vec::new();
        gradients.resize_with(count, || None);
        let mut flow = Flow { gradients, parameters, checked: options.checked, op: "the loss" };
        for &(loss, weight) in losses {
            let device = loss.tensor.device();
            flow.give(loss.link, Tensor::new(&device, (1, 1), &[weight], Element::F32)?)?;
        }
        let mut leaves = Vec::new();
        for (index, op) in self.ops.into_iter().enumerate().rev() {
            let gradient = flow.gradients[index].take();
            match (op, gradient) {
                (Some(op), Some(gradient)) => {
                    flow.op = op.name();
                    op.backward(gradient, &mut flow)?;
                    if flow.checked {
                        check_parameters(flow.parameters, flow.op)?;
                    }
                }
                (None, Some(gradient)) => leaves.push((index, gradient)),
                (_, None) => {}
            }
        }
        Ok(LeafGradients { leaves })
    }
}

/// The gradients of the leaves of a tape.
pub struct LeafGradients {
    leaves: Vec<(usize, Tensor)>,
}

impl LeafGradients {
    /// The gradient of a leaf, if the losses depend on it.
    pub fn of(&self, leaf: &Var) -> Option<&Tensor> {
        self.leaves.iter().find(|&&(index, _)| Some(index) == leaf.link).map(|(_, gradient)| gradient)
    }
}

/// Gradients on their way back.
pub(crate) struct Flow<'a> {
    gradients: Vec<Option<Tensor>>,
    parameters: &'a mut Parameters,
    checked: bool,
    op: &'static str,
}

impl Flow<'_> {
    /// The weights, to add to their gradients.
    pub(crate) fn parameters(&mut self) -> &mut Parameters {
        self.parameters
    }

    /// Whether a gradient of this weight is wanted.
    pub(crate) fn trains(&self, id: ParameterId) -> bool {
        self.parameters.info(id).trained
    }

    /// Gives a whole gradient, adding it to what others gave.
    pub(crate) fn give(&mut self, to: Link, gradient: Tensor) -> Result<(), Error> {
        let Some(index) = to else { return Ok(()) };
        if self.checked {
            self.check(&gradient)?;
        }
        let sum = match self.gradients[index].take() {
            None => gradient,
            Some(before) => op::add_to(before.into_unshared()?, &gradient)?,
        };
        self.gradients[index] = Some(sum);
        Ok(())
    }

    /// A place to write a gradient of the shape of `like`, and whether to add to what is there.
    /// It goes back through [`Flow::put`].
    pub(crate) fn slot(&mut self, to: usize, like: &Tensor) -> Result<(Tensor, bool), Error> {
        self.slot_shaped(to, (like.rows(), like.columns()), like.element())
    }

    /// The same for an op that does not keep what it took.
    pub(crate) fn slot_shaped(
        &mut self,
        to: usize,
        (rows, columns): (usize, usize),
        element: Element,
    ) -> Result<(Tensor, bool), Error> {
        match self.gradients[to].take() {
            Some(before) => Ok((before.into_unshared()?, true)),
            None => Ok((Tensor::scratch(self.parameters.device(), rows, columns, element)?, false)),
        }
    }

    /// Puts back what [`Flow::slot`] gave out.
    pub(crate) fn put(&mut self, to: usize, gradient: Tensor) -> Result<(), Error> {
        if self.checked {
            self.check(&gradient)?;
        }
        self.gradients[to] = Some(gradient);
        Ok(())
    }

    fn check(&self, gradient: &Tensor) -> Result<(), Error> {
        if gradient.to_vec()?.iter().all(|value| value.is_finite()) {
            return Ok(());
        }
        Err(Error::NotFinite { what: "a gradient".to_owned(), place: format!(", made by {}", self.op) })
    }
}

fn check_parameters(parameters: &Parameters, op: &'static str) -> Result<(), Error> {
    for id in parameters.ids() {
        if !parameters.gradient_to_vec(id)?.iter().all(|value| value.is_finite()) {
            let what = format!("the gradient of {}", parameters.info(id).name);
            return Err(Error::NotFinite { what, place: format!(", made by {op}") });
        }
    }
    Ok(())
}

//! The weights of a model, and their gradients.
//!
//! All of them lie end to end in one matrix, so that the optimizer and the gradient's norm are one
//! pass over memory. On a GPU there is a second copy in bf16, which the products read; on the CPU
//! the products read weights laid out in panels, in f32 or in 8 bits, made when first asked for and
//! thrown away when the weights change.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use half::bf16;

use crate::cpu::{EightBitWeights, Packed, View};
use crate::cuda::Operand;
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::tensor::Tensor;

/// Every weight begins at a multiple of this, so that wide reads are aligned.
const ALIGNMENT: usize = 64;

/// A weight, by its place among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ParameterId(usize);

impl ParameterId {
    /// Its place.
    pub fn index(self) -> usize {
        self.0
    }
}

/// What is known of a weight besides its values.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterInfo {
    /// What it is called in files and messages.
    pub name: String,
    /// How many rows; one for a vector.
    pub rows: usize,
    /// How many columns.
    pub columns: usize,
    /// Which settings of the optimizer apply to it: an index into its groups.
    pub group: usize,
    /// Whether the optimizer's weight decay applies to it.
    pub decays: bool,
    /// Whether it is trained.
    pub trained: bool,
    offset: usize,
}

impl ParameterInfo {
    /// How many values it has.
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether it has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where its values begin among those of all weights.
    pub fn offset(&self) -> usize {
        self.offset
    }
}

/// Weights being gathered, on the host.
#[derive(Clone, Default)]
pub struct ParametersBuilder {
    infos: Vec<ParameterInfo>,
    values: Vec<f32>,
}

impl ParametersBuilder {
    /// Adds a weight of `rows × columns`, trained, in group 0. Matrices decay, vectors do not.
    ///
    /// # Panics
    /// If there are not as many values as places.
    pub fn add(&mut self, name: &str, (rows, columns): (usize, usize), values: &[f32]) -> ParameterId {
        assert_eq!(values.len(), rows * columns, "{name} has as many values as places");
        let offset = self.values.len();
        self.values.extend_from_slice(values);
        self.values.resize(self.values.len().next_multiple_of(ALIGNMENT), 0.0);
        let (name, decays) = (name.to_owned(), rows > 1);
        self.infos.push(ParameterInfo { name, rows, columns, group: 0, decays, trained: true, offset });
        ParameterId(self.infos.len() - 1)
    }

    /// Changes what is known of a weight: its group, whether it decays or is trained.
    pub fn info_mut(&mut self, id: ParameterId) -> &mut ParameterInfo {
        &mut self.infos[id.0]
    }

    /// Puts the weights on a device.
    pub fn build(self, device: &Device) -> Result<Parameters, Error> {
        let total = self.values.len();
        let masters = Tensor::new(device, (1, total), &self.values, Element::F32)?;
        let halves = match device {
            Device::Cpu(_) => None,
            Device::Cuda(_) => Some(Tensor::new(device, (1, total), &self.values, Element::Bf16)?),
        };
        let written = vec![false; self.infos.len()];
        Ok(Parameters {
            device: device.clone(),
            infos: self.infos,
            masters,
            halves,
            gradients: None,
            written,
            packed: Mutex::default(),
            eight_bit: Mutex::default(),
        })
    }
}

/// How a weight is laid out for a product on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Layout {
    /// As it is: `y = x · w`.
    Plain,
    /// Exchanged: `y = x · wᵀ`.
    Transposed,
}

/// What was made of weights, for the next product with them.
type Kept<K, V> = Mutex<HashMap<K, Arc<V>>>;

/// What is kept for `key`, made if it is not there.
fn kept<K: Eq + Hash, V>(all: &Kept<K, V>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(value) = lock().get(&key) {
        return Arc::clone(value);
    }
    // Not under the lock: laying out is shared among threads, and one that waits for the others takes
    // up other work meanwhile, which may come here too. Rather do it twice than wait for oneself.
    let value = Arc::new(make());
    Arc::clone(lock().entry(key).or_insert(value))
}

/// The weights of a model on a device.
pub struct Parameters {
    device: Device,
    infos: Vec<ParameterInfo>,
    masters: Tensor,
    halves: Option<Tensor>,
    gradients: Option<Tensor>,
    written: Vec<bool>,
    packed: Kept<(ParameterId, Layout), Packed>,
    eight_bit: Kept<ParameterId, EightBitWeights>,
}

impl Parameters {
    /// The device they are on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// All weights, in order.
    pub fn ids(&self) -> impl Iterator<Item = ParameterId> + use<> {
        (0..self.infos.len()).map(ParameterId)
    }

    /// What is known of a weight.
    pub fn info(&self, id: ParameterId) -> &ParameterInfo {
        &self.infos[id.0]
    }

    /// Changes what is known of a weight: its group, whether it decays or is trained.
    pub fn info_mut(&mut self, id: ParameterId) -> &mut ParameterInfo {
        &mut self.infos[id.0]
    }

    /// How many values the weights have.
    pub fn count(&self) -> usize {
        self.infos.iter().map(ParameterInfo::len).sum()
    }

    /// The values of a weight, on the host.
    pub fn to_vec(&self, id: ParameterId) -> Result<Vec<f32>, Error> {
        self.read(&self.masters, id)
    }

    /// A row of a weight, on the host.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_to_vec(&self, id: ParameterId, row: usize) -> Result<Vec<f32>, Error> {
        let info = self.info(id);
        assert!(row < info.rows, "{} has the row", info.name);
        self.read_some(&self.masters, info.offset + row * info.columns, info.columns)
    }

    /// The gradient of a weight, on the host: zeros if nothing has a say in it.
    pub fn gradient_to_vec(&self, id: ParameterId) -> Result<Vec<f32>, Error> {
        match &self.gradients {
            Some(gradients) if self.written[id.0] => self.read(gradients, id),
            _ => Ok(vec![0.0; self.info(id).len()]),
        }
    }

    fn read(&self, all: &Tensor, id: ParameterId) -> Result<Vec<f32>, Error> {
        let info = self.info(id);
        self.read_some(all, info.offset, info.len())
    }

    fn read_some(&self, all: &Tensor, first: usize, count: usize) -> Result<Vec<f32>, Error> {
        match &self.device {
            Device::Cpu(_) => Ok(all.values()[first..first + count].to_vec()),
            Device::Cuda(_) => {
                let mut values = vec![0.0; count];
                all.buffer().read(4 * first, &mut values)?;
                Ok(values)
            }
        }
    }

    /// Puts other values in a weight's place.
    ///
    /// # Panics
    /// If there are not as many values as places.
    pub fn set(&mut self, id: ParameterId, values: &[f32]) -> Result<(), Error> {
        let info = self.infos[id.0].clone();
        assert_eq!(values.len(), info.len(), "{} has as many values as places", info.name);
        match &self.device {
            Device::Cpu(_) => {
                self.masters.values_mut()[info.offset..info.offset + info.len()].copy_from_slice(values);
            }
            Device::Cuda(_) => {
                self.masters.buffer_mut().write(4 * info.offset, values)?;
                let rounded: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
                if let Some(halves) = &mut self.halves {
                    halves.buffer_mut().write(2 * info.offset, &rounded)?;
                }
            }
        }
        self.forget_packed();
        Ok(())
    }

    /// All values, end to end, on the host.
    pub(crate) fn masters_to_vec(&self) -> Result<Vec<f32>, Error> {
        self.masters.to_vec()
    }

    /// How long [`Parameters::masters_to_vec`] is.
    pub(crate) fn masters_len(&self) -> usize {
        self.masters.columns()
    }

    /// Puts other values in the place of all, as [`Parameters::masters_to_vec`] gave them.
    pub(crate) fn set_masters(&mut self, values: &[f32]) -> Result<(), Error> {
        for id in self.ids() {
            let info = self.info(id);
            let range = info.offset..info.offset + info.len();
            self.set(id, &values[range])?;
        }
        Ok(())
    }

    /// The values of a weight on the CPU.
    pub(crate) fn values(&self, id: ParameterId) -> &[f32] {
        let info = self.info(id);
        &self.masters.values()[info.offset..info.offset + info.len()]
    }

    /// A weight on the CPU as the right-hand side of a product.
    pub(crate) fn packed(&self, id: ParameterId, layout: Layout) -> Arc<Packed> {
        kept(&self.packed, (id, layout), || {
            let view = self.view(id);
            Packed::new(match layout {
                Layout::Plain => view,
                Layout::Transposed => view.transposed(),
            })
        })
    }

    /// A weight `[out, in]` on the CPU in 8 bits.
    pub(crate) fn eight_bit(&self, id: ParameterId) -> Arc<EightBitWeights> {
        kept(&self.eight_bit, id, || EightBitWeights::new(self.view(id)))
    }

    fn view(&self, id: ParameterId) -> View<'_> {
        let info = self.info(id);
        View::new(self.values(id), info.rows, info.columns)
    }

    /// Where a weight lies on the GPU in f32.
    pub(crate) fn master_address(&self, id: ParameterId) -> u64 {
        self.masters.address() + 4 * self.info(id).offset as u64
    }

    /// Where a weight lies on the GPU in bf16.
    pub(crate) fn half_address(&self, id: ParameterId) -> u64 {
        let halves = self.halves.as_ref().expect("weights on a GPU have a copy in bf16");
        halves.address() + 2 * self.info(id).offset as u64
    }

    /// A weight on the GPU as an operand of a product, in bf16 or, for f32 activations, in f32.
    pub(crate) fn operand(&self, id: ParameterId, element: Element) -> Operand {
        let address = match element {
            Element::F32 => self.master_address(id),
            Element::Bf16 => self.half_address(id),
        };
        Operand { address, element, stride: self.info(id).columns, transposed: false }
    }

    /// Makes a place for gradients, with nothing in it.
    pub(crate) fn begin_gradients(&mut self) -> Result<(), Error> {
        if self.gradients.is_none() {
            let gradients = Tensor::zeros(&self.device, 1, self.masters.columns(), Element::F32)?;
            self.gradients = Some(gradients);
        }
        Ok(())
    }

    /// The place for a weight's gradient on the CPU, and whether to add to what is there.
    pub(crate) fn gradient(&mut self, id: ParameterId) -> (&mut [f32], bool) {
        let (offset, length) = (self.infos[id.0].offset, self.infos[id.0].len());
        let accumulate = std::mem::replace(&mut self.written[id.0], true);
        let gradients = self.gradients.as_mut().expect("a backward pass began the gradients");
        (&mut gradients.values_mut()[offset..offset + length], accumulate)
    }

    /// The place for a weight's gradient on the GPU, and whether to add to what is there.
    pub(crate) fn gradient_operand(&mut self, id: ParameterId) -> (Operand, bool) {
        let (offset, stride) = (self.infos[id.0].offset, self.infos[id.0].columns);
        let accumulate = std::mem::replace(&mut self.written[id.0], true);
        let gradients = self.gradients.as_ref().expect("a backward pass began the gradients");
        let address = gradients.address() + 4 * offset as u64;
        (Operand { address, element: Element::F32, stride, transposed: false }, accumulate)
    }

    /// The place for a weight's gradient on the CPU, to be added to: zeros if nothing is there.
    pub(crate) fn cleared_gradient(&mut self, id: ParameterId) -> &mut [f32] {
        let (place, accumulate) = self.gradient(id);
        if !accumulate {
            place.fill(0.0);
        }
        place
    }

    /// The place for a weight's gradient on the GPU, to be added to: zeros if nothing is there.
    pub(crate) fn cleared_gradient_operand(&mut self, id: ParameterId) -> Result<Operand, Error> {
        let (place, accumulate) = self.gradient_operand(id);
        if !accumulate {
            let (offset, length) = (self.infos[id.0].offset, self.infos[id.0].len());
            let gradients = self.gradients.as_mut().expect("a backward pass began the gradients");
            gradients.buffer_mut().clear(4 * offset, 4 * length)?;
        }
        Ok(place)
    }

    /// Everything that an optimizer works on. Gradients that nothing wrote are zero.
    pub(crate) fn arenas(&mut self) -> Result<Arenas<'_>, Error> {
        self.begin_gradients()?;
        let gradients = self.gradients.as_mut().expect("gradients were just begun");
        for (info, _) in self.infos.iter().zip(&self.written).filter(|&(_, &written)| !written) {
            match &self.device {
                Device::Cpu(_) => gradients.values_mut()[info.offset..info.offset + info.len()].fill(0.0),
                Device::Cuda(_) => gradients.buffer_mut().clear(4 * info.offset, 4 * info.len())?,
            }
        }
        self.written.fill(true);
        Ok(Arenas { infos: &self.infos, masters: &mut self.masters, halves: self.halves.as_mut(), gradients })
    }

    /// Called when the values or the gradients have been used up: nothing is written or packed.
    pub(crate) fn forget_gradients(&mut self) {
        self.written.fill(false);
    }

    /// Called when values have changed: what was packed is of the old ones.
    pub(crate) fn forget_packed(&mut self) {
        self.packed.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.eight_bit.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// All weights and gradients, end to end.
pub(crate) struct Arenas<'a> {
    pub(crate) infos: &'a [ParameterInfo],
    pub(crate) masters: &'a mut Tensor,
    pub(crate) halves: Option<&'a mut Tensor>,
    pub(crate) gradients: &'a mut Tensor,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_keep_their_values_and_lie_aligned() {
        let mut builder = ParametersBuilder::default();
        let a = builder.add("a", (1, 3), &[1.0, 2.0, 3.0]);
        let b = builder.add("b", (2, 2), &[4.0, 5.0, 6.0, 7.0]);
        let mut parameters = builder.build(&Device::cpu()).unwrap();
        assert_eq!(parameters.to_vec(a).unwrap(), [1.0, 2.0, 3.0]);
        assert_eq!(parameters.info(b).offset() % ALIGNMENT, 0);
        assert!(parameters.info(b).decays && !parameters.info(a).decays);
        parameters.set(b, &[0.0, 1.0, 2.0, 3.0]).unwrap();
        assert_eq!(parameters.values(b), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(parameters.count(), 7);
    }

    #[test]
    fn the_first_gradient_replaces_and_the_next_adds() {
        let mut builder = ParametersBuilder::default();
        let a = builder.add("a", (1, 1), &[1.0]);
        let b = builder.add("b", (1, 1), &[1.0]);
        let mut parameters = builder.build(&Device::cpu()).unwrap();
        parameters.begin_gradients().unwrap();
        assert!(!parameters.gradient(a).1);
        parameters.gradient(a).0[0] = 5.0;
        assert!(parameters.gradient(a).1);
        parameters.gradient(b).0[0] = 7.0;
        parameters.forget_gradients();
        parameters.gradient(a).0[0] = 2.0;
        assert_eq!(parameters.gradient_to_vec(b).unwrap(), [0.0]);
        let arenas = parameters.arenas().unwrap();
        assert_eq!(arenas.gradients.values()[ALIGNMENT], 0.0, "what nothing wrote is zero");
    }
}

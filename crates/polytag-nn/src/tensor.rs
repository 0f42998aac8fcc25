//! Matrices on a device.
//!
//! Everything in the engine is a matrix: tokens by hidden size, documents by dimension, weights. A
//! [`Tensor`] shares its memory with its clones and never changes while it is shared; ops write into
//! tensors that they have just made.

use std::sync::Arc;

use half::bf16;

use crate::cuda::{Buffer, Operand};
use crate::device::{Device, HostBuffer};
use crate::element::Element;
use crate::error::Error;

/// A row-major matrix on a device.
#[derive(Clone)]
pub struct Tensor {
    rows: usize,
    columns: usize,
    data: Data,
}

#[derive(Clone)]
enum Data {
    Cpu(Arc<HostBuffer>),
    Cuda(Arc<Buffer>, Element),
}

impl Tensor {
    /// A matrix with anything in it, for an op to write.
    ///
    /// On the CPU the element is always [`Element::F32`].
    pub(crate) fn scratch(
        device: &Device,
        rows: usize,
        columns: usize,
        element: Element,
    ) -> Result<Tensor, Error> {
        let data = match device {
            Device::Cpu(cpu) => Data::Cpu(Arc::new(HostBuffer::take(cpu, rows * columns)?)),
            Device::Cuda(cuda) => {
                Data::Cuda(Arc::new(Buffer::take(cuda, rows * columns * element.bytes())?), element)
            }
        };
        Ok(Tensor { rows, columns, data })
    }

    /// A matrix of zeros.
    pub fn zeros(device: &Device, rows: usize, columns: usize, element: Element) -> Result<Tensor, Error> {
        let mut tensor = Tensor::scratch(device, rows, columns, element)?;
        match &mut tensor.data {
            Data::Cpu(buffer) => unshared(buffer).fill(0.0),
            Data::Cuda(buffer, _) => unshared(buffer).clear(0, rows * columns * element.bytes())?,
        }
        Ok(tensor)
    }

    /// A matrix of these values, rounded if the element says so.
    ///
    /// # Panics
    /// If there are not `rows * columns` values.
    pub fn new(
        device: &Device,
        (rows, columns): (usize, usize),
        values: &[f32],
        element: Element,
    ) -> Result<Tensor, Error> {
        assert_eq!(values.len(), rows * columns, "a matrix has as many values as places");
        let mut tensor = Tensor::scratch(device, rows, columns, element)?;
        match &mut tensor.data {
            Data::Cpu(buffer) => unshared(buffer).copy_from_slice(values),
            Data::Cuda(buffer, Element::F32) => unshared(buffer).write(0, values)?,
            Data::Cuda(buffer, Element::Bf16) => {
                let rounded: Vec<bf16> = values.iter().map(|&value| bf16::from_f32(value)).collect();
                unshared(buffer).write(0, &rounded)?;
            }
        }
        Ok(tensor)
    }

    /// The values, on the host, when all work is done.
    pub fn to_vec(&self) -> Result<Vec<f32>, Error> {
        let length = self.rows * self.columns;
        match &self.data {
            Data::Cpu(buffer) => Ok(buffer[..length].to_vec()),
            Data::Cuda(buffer, Element::F32) => {
                let mut values = vec![0.0; length];
                buffer.read(0, &mut values)?;
                Ok(values)
            }
            Data::Cuda(buffer, Element::Bf16) => {
                let mut values = vec![bf16::ZERO; length];
                buffer.read(0, &mut values)?;
                Ok(values.into_iter().map(f32::from).collect())
            }
        }
    }

    /// The same matrix on another device, or this one if it is there already. Goes by the host.
    pub fn on(&self, device: &Device) -> Result<Tensor, Error> {
        if self.device() == *device {
            return Ok(self.clone());
        }
        Tensor::new(device, (self.rows, self.columns), &self.to_vec()?, self.element())
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// What it is made of.
    pub fn element(&self) -> Element {
        match &self.data {
            Data::Cpu(_) => Element::F32,
            Data::Cuda(_, element) => *element,
        }
    }

    /// Where it lies.
    pub fn device(&self) -> Device {
        match &self.data {
            Data::Cpu(buffer) => Device::Cpu(buffer.owner().clone()),
            Data::Cuda(buffer, _) => Device::Cuda(buffer.device().clone()),
        }
    }

    /// The values of a matrix on the CPU.
    ///
    /// # Panics
    /// If it is elsewhere; an op asks its own device's tensors only.
    pub fn values(&self) -> &[f32] {
        match &self.data {
            Data::Cpu(buffer) => buffer,
            Data::Cuda(..) => panic!("values of a matrix on a GPU are not at hand; see to_vec"),
        }
    }

    /// The values of a matrix on the CPU that nobody shares, to be written.
    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            Data::Cpu(buffer) => unshared::<HostBuffer>(buffer),
            Data::Cuda(..) => panic!("values of a matrix on a GPU cannot be written from here"),
        }
    }

    /// The memory of a matrix on a GPU.
    pub(crate) fn buffer(&self) -> &Buffer {
        match &self.data {
            Data::Cuda(buffer, _) => buffer,
            Data::Cpu(_) => panic!("a matrix on the CPU has no device memory"),
        }
    }

    /// The memory of a matrix on a GPU that nobody shares, to be written.
    pub(crate) fn buffer_mut(&mut self) -> &mut Buffer {
        match &mut self.data {
            Data::Cuda(buffer, _) => unshared(buffer),
            Data::Cpu(_) => panic!("a matrix on the CPU has no device memory"),
        }
    }

    /// Where a matrix on a GPU lies, to be an argument of a kernel.
    pub(crate) fn address(&self) -> u64 {
        self.buffer().pointer()
    }

    /// This matrix as an operand of a product.
    pub(crate) fn operand(&self) -> Operand {
        Operand { address: self.address(), element: self.element(), stride: self.columns, transposed: false }
    }

    /// Whether nobody else shares the memory, so that it may be written.
    pub(crate) fn is_unshared(&self) -> bool {
        match &self.data {
            Data::Cpu(buffer) => Arc::strong_count(buffer) == 1,
            Data::Cuda(buffer, _) => Arc::strong_count(buffer) == 1,
        }
    }

    /// This matrix, or a copy of it if somebody shares it.
    pub(crate) fn into_unshared(self) -> Result<Tensor, Error> {
        if self.is_unshared() {
            return Ok(self);
        }
        let mut copy = Tensor::scratch(&self.device(), self.rows, self.columns, self.element())?;
        match (&mut copy.data, &self.data) {
            (Data::Cpu(to), Data::Cpu(from)) => unshared(to).copy_from_slice(from),
            (Data::Cuda(to, _), Data::Cuda(from, element)) => {
                unshared(to).copy(from, self.rows * self.columns * element.bytes())?;
            }
            _ => unreachable!("a copy is made on the same device"),
        }
        Ok(copy)
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor {} x {} {:?}", self.rows, self.columns, self.element())
    }
}

fn unshared<T>(shared: &mut Arc<T>) -> &mut T {
    Arc::get_mut(shared).expect("only tensors that nobody shares are written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_comes_back_as_it_went() {
        let device = Device::cpu();
        let tensor = Tensor::new(&device, (2, 3), &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], Element::F32).unwrap();
        assert_eq!(tensor.to_vec().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!((tensor.rows(), tensor.columns()), (2, 3));
        assert!(Tensor::zeros(&device, 4, 4, Element::F32).unwrap().values().iter().all(|&v| v == 0.0));
    }

    #[test]
    fn a_gpu_without_room_says_how_much_was_asked_for() {
        let options = crate::cuda::CudaOptions { memory_limit: Some(64 << 20), ..Default::default() };
        if crate::op::testing::gpu("running out of memory").is_none() {
            return;
        }
        let device = Device::cuda(&options).unwrap();
        let kept = Tensor::zeros(&device, 1024, 4096, Element::F32).unwrap();
        let error = Tensor::zeros(&device, 4096, 4096, Element::F32).unwrap_err().to_string();
        assert!(error.contains("64.0 MiB more") && error.contains("this program uses 16.0 MiB"), "{error}");
        assert!(error.contains("lower the batch"), "{error}");
        drop(kept);
        assert!(Tensor::zeros(&device, 2048, 4096, Element::F32).is_ok(), "it goes on after that");
    }

    #[test]
    fn a_shared_matrix_is_copied_before_it_is_written() {
        let device = Device::cpu();
        let first = Tensor::new(&device, (1, 2), &[1.0, 2.0], Element::F32).unwrap();
        let shared = first.clone();
        assert!(!first.is_unshared());
        let mut own = first.into_unshared().unwrap();
        own.values_mut()[0] = 9.0;
        assert_eq!(shared.values(), [1.0, 2.0]);
    }
}

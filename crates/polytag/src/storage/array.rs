//! Numbers that are in memory, or looked at where they lie in a file.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::Arc;

use bytemuck::{Pod, cast_slice, try_cast_slice};

use super::Mapped;

/// Numbers, in memory or in a file.
#[derive(Debug)]
pub enum Array<T: Pod> {
    /// In memory.
    Held(Vec<T>),
    /// In a file that is mapped, aligned and in this machine's byte order.
    Mapped {
        /// The file.
        file: Arc<Mapped>,
        /// The bytes.
        bytes: Range<usize>,
        /// What they are.
        kind: PhantomData<T>,
    },
}

impl<T: Pod> Array<T> {
    /// The numbers that some bytes of a mapped file are: looked at where they lie if they lie as this machine wants
    /// them, else none.
    pub(crate) fn mapped(file: &Arc<Mapped>, bytes: Range<usize>) -> Option<Array<T>> {
        let fits =
            cfg!(target_endian = "little") && try_cast_slice::<u8, T>(file.get(bytes.clone())?).is_ok();
        fits.then(|| Array::Mapped { file: Arc::clone(file), bytes, kind: PhantomData })
    }

    /// Whether they lie in a file.
    pub fn is_mapped(&self) -> bool {
        matches!(self, Array::Mapped { .. })
    }

    /// The numbers to be changed, if they are in memory.
    pub fn held_mut(&mut self) -> Option<&mut Vec<T>> {
        match self {
            Array::Held(values) => Some(values),
            Array::Mapped { .. } => None,
        }
    }
}

/// A copy is in memory, whatever it is of.
impl<T: Pod> Clone for Array<T> {
    fn clone(&self) -> Array<T> {
        Array::Held(self.to_vec())
    }
}

impl<T: Pod + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Array<T>) -> bool {
        **self == **other
    }
}

impl<T: Pod> Default for Array<T> {
    fn default() -> Array<T> {
        Array::Held(Vec::new())
    }
}

impl<T: Pod> Deref for Array<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Array::Held(values) => values,
            Array::Mapped { file, bytes, .. } => cast_slice(&file[bytes.clone()]),
        }
    }
}

impl<T: Pod> From<Vec<T>> for Array<T> {
    fn from(values: Vec<T>) -> Array<T> {
        Array::Held(values)
    }
}

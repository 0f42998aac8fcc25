//! Matrix products by cuBLASLt.
//!
//! Matrices are row-major here and column-major there: what is `left · right` here is
//! `rightᵀ · leftᵀ` there, over the same memory. What a product of some shape needs (descriptors and
//! the algorithm cuBLASLt proposes first) is kept as a plan. Algorithms are never chosen by timing,
//! so that the same work gives the same bytes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::sync::PoisonError;

use cudarc::cublaslt::{result as lt, sys};

use super::{Cuda, WORKSPACE};
use crate::element::Element;
use crate::error::Error;

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Operand {
    /// Where it lies.
    pub(crate) address: u64,
    /// What it is made of.
    pub(crate) element: Element,
    /// How far apart its stored rows are.
    pub(crate) stride: usize,
    /// Whether it is stored with rows and columns exchanged.
    pub(crate) transposed: bool,
}

/// `out[rows, columns] = left[rows, depth] · right[depth, columns]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    pub(crate) left: Operand,
    pub(crate) right: Operand,
    pub(crate) out: Operand,
    /// Whether to add to what is in `out`.
    pub(crate) accumulate: bool,
    /// What is added to each row: `columns` values of the element of `out`; zero for nothing.
    pub(crate) bias: u64,
}

/// How often a product is made, and how many elements lie between a matrix and the next one of its kind;
/// none where it is the same one each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Repeat {
    pub(crate) count: usize,
    pub(crate) left: usize,
    pub(crate) right: usize,
    pub(crate) out: usize,
}

impl Repeat {
    /// A single product.
    const ONCE: Repeat = Repeat { count: 1, left: 0, right: 0, out: 0 };
}

/// What a plan is a function of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct PlanKey {
    shape: (usize, usize, usize),
    strides: (usize, usize, usize),
    elements: (Element, Element, Element),
    transposed: (bool, bool),
    accumulate: bool,
    bias: bool,
    repeat: Repeat,
    precision: Precision,
}

/// What becomes of factors in f32 before they are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Precision {
    /// They are rounded to TF32, which the tensor cores take: a mantissa of 10 bits.
    Rounded,
    /// Nothing.
    Full,
}

struct Plan {
    product: sys::cublasLtMatmulDesc_t,
    left: sys::cublasLtMatrixLayout_t,
    right: sys::cublasLtMatrixLayout_t,
    out: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: descriptors are plain memory of the library, only used under the mutex of `Plans`.
unsafe impl Send for Plan {}

/// The plans made so far.
#[derive(Default)]
pub(super) struct Plans {
    made: HashMap<PlanKey, Plan>,
}

impl Cuda {
    /// Asks for a product. It runs later, after what was asked for before.
    pub(crate) fn product(&self, product: &Product) -> Result<(), Error> {
        self.products(product, Repeat::ONCE)
    }

    /// Asks for a product of matrices in f32 that are not rounded: for results that are compared with each
    /// other rather than learned from. The tensor cores cannot help with it, so that it takes longer.
    pub(crate) fn full_product(&self, product: &Product) -> Result<(), Error> {
        assert_eq!((product.left.element, product.right.element), (Element::F32, Element::F32), "in f32");
        self.products_in(product, Repeat::ONCE, Precision::Full)
    }

    /// Asks for several products of one shape at once; `product` is the first of them.
    pub(crate) fn products(&self, product: &Product, repeat: Repeat) -> Result<(), Error> {
        self.products_in(product, repeat, Precision::Rounded)
    }

    fn products_in(&self, product: &Product, repeat: Repeat, precision: Precision) -> Result<(), Error> {
        if product.rows == 0 || product.columns == 0 || repeat.count == 0 {
            return Ok(());
        }
        assert!(!product.out.transposed, "a result is stored as it is");
        self.bind()?;
        let mut plans = self.inner.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = match plans.made.entry(PlanKey::of(product, repeat, precision)) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(place) => {
                // SAFETY: the library was found when the device was opened.
                let plan = unsafe { Plan::new(self.inner.blas.0, product, repeat, precision) };
                place.insert(plan.map_err(failed(product))?)
            }
        };
        let (alpha, beta) = (1.0f32, if product.accumulate { 1.0f32 } else { 0.0 });
        // SAFETY: the plan is of this shape; the operands are memory of this device, which later work
        // can only reuse after this; the scalars are read before the call returns.
        unsafe {
            if product.bias != 0 {
                set_bias(plan.product, product.bias).map_err(failed(product))?;
            }
            lt::matmul(
                self.inner.blas.0,
                plan.product,
                (&raw const alpha).cast(),
                (&raw const beta).cast(),
                product.right.address as *const c_void,
                plan.right,
                product.left.address as *const c_void,
                plan.left,
                product.out.address as *const c_void,
                plan.out,
                product.out.address as *mut c_void,
                plan.out,
                &plan.algorithm,
                self.inner.workspace as *mut c_void,
                WORKSPACE,
                self.raw_stream().cast(),
            )
        }
        .map_err(failed(product))
    }
}

impl PlanKey {
    fn of(product: &Product, repeat: Repeat, precision: Precision) -> PlanKey {
        PlanKey {
            shape: (product.rows, product.columns, product.depth),
            strides: (product.left.stride, product.right.stride, product.out.stride),
            elements: (product.left.element, product.right.element, product.out.element),
            transposed: (product.left.transposed, product.right.transposed),
            accumulate: product.accumulate,
            bias: product.bias != 0,
            repeat,
            precision,
        }
    }
}

impl Plan {
    /// # Safety
    /// The handle must be live.
    unsafe fn new(
        blas: sys::cublasLtHandle_t,
        product: &Product,
        repeat: Repeat,
        precision: Precision,
    ) -> Result<Plan, lt::CublasError> {
        let compute = match (product.left.element, precision) {
            (Element::F32, Precision::Rounded) => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let descriptor = lt::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F)?;
        // CUBLAS_OP_N and CUBLAS_OP_T.
        let operation = |transposed: bool| i32::from(transposed);
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        // SAFETY: the descriptor is live, and each value has the size of its attribute.
        unsafe {
            let right = operation(product.right.transposed);
            set(descriptor, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &right)?;
            let left = operation(product.left.transposed);
            set(descriptor, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &left)?;
            if product.bias != 0 {
                let epilogue = sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS;
                set(descriptor, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue)?;
                set_bias(descriptor, product.bias)?;
            }
        }
        let right = layout(&product.right, product.depth, product.columns)?;
        let left = layout(&product.left, product.rows, product.depth)?;
        let out = layout(&product.out, product.rows, product.columns)?;
        if repeat != Repeat::ONCE {
            let steps = [(left, repeat.left), (right, repeat.right), (out, repeat.out)];
            for (layout, step) in steps {
                // SAFETY: the layout is live.
                unsafe { set_repeat(layout, repeat.count, step)? };
            }
        }
        let preference = lt::create_matmul_pref()?;
        // SAFETY: all descriptors are live; the preference is destroyed after its one use.
        let proposed = unsafe {
            let workspace = WORKSPACE as u64;
            lt::set_matmul_pref_attribute(
                preference,
                sys::cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                (&raw const workspace).cast(),
                size_of::<u64>(),
            )?;
            let proposed = lt::get_matmul_algo_heuristic(blas, descriptor, right, left, out, out, preference);
            lt::destroy_matmul_pref(preference)?;
            proposed?
        };
        Ok(Plan { product: descriptor, left, right, out, algorithm: proposed.algo })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the descriptors are live and used by nobody else. Destroying them cannot fail then.
        unsafe {
            lt::destroy_matmul_desc(self.product).ok();
            for layout in [self.left, self.right, self.out] {
                lt::destroy_matrix_layout(layout).ok();
            }
        }
    }
}

/// How an operand of `rows × columns` lies in memory, seen column-major.
fn layout(
    operand: &Operand,
    rows: usize,
    columns: usize,
) -> Result<sys::cublasLtMatrixLayout_t, lt::CublasError> {
    let kind = match operand.element {
        Element::F32 => sys::cudaDataType::CUDA_R_32F,
        Element::Bf16 => sys::cudaDataType::CUDA_R_16BF,
    };
    let (stored_rows, stored_columns) = if operand.transposed { (columns, rows) } else { (rows, columns) };
    lt::create_matrix_layout(kind, stored_columns as u64, stored_rows as u64, operand.stride as i64)
}

/// Makes a layout one of `count` matrices, each `step` elements after the last.
///
/// # Safety
/// The layout must be live.
unsafe fn set_repeat(
    layout: sys::cublasLtMatrixLayout_t,
    count: usize,
    step: usize,
) -> Result<(), lt::CublasError> {
    use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
    let (count, step) = (count as i32, step as i64);
    // SAFETY: the layout is live; the count has 32 bits and the step 64, as the attributes do.
    unsafe {
        lt::set_matrix_layout_attribute(
            layout,
            Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
            (&raw const count).cast(),
            size_of::<i32>(),
        )?;
        lt::set_matrix_layout_attribute(
            layout,
            Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
            (&raw const step).cast(),
            size_of::<i64>(),
        )
    }
}

/// # Safety
/// The descriptor must be live and the value of the attribute's kind.
unsafe fn set<T>(
    descriptor: sys::cublasLtMatmulDesc_t,
    attribute: sys::cublasLtMatmulDescAttributes_t,
    value: &T,
) -> Result<(), lt::CublasError> {
    // SAFETY: as the caller says.
    unsafe {
        lt::set_matmul_desc_attribute(descriptor, attribute, (value as *const T).cast(), size_of::<T>())
    }
}

/// # Safety
/// The descriptor must be live.
unsafe fn set_bias(descriptor: sys::cublasLtMatmulDesc_t, bias: u64) -> Result<(), lt::CublasError> {
    let attribute = sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    // SAFETY: the attribute is an address, and so is the value.
    unsafe { set(descriptor, attribute, &bias) }
}

fn failed(product: &Product) -> impl Fn(lt::CublasError) -> Error {
    let (rows, columns, depth) = (product.rows, product.columns, product.depth);
    move |problem| Error::Cuda {
        action: format!("multiplying {rows} x {depth} by {depth} x {columns}"),
        problem: format!("{problem:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::op::testing::{self, Matrix, relative_error};
    use crate::tensor::Tensor;

    /// Three products whose matrices lie side by side or one below the other; all with the same right side.
    #[test]
    fn repeated_products_are_products_one_by_one() {
        let Some(device) = testing::gpu("repeated products") else { return };
        let Device::Cuda(cuda) = &device else { unreachable!("a GPU was asked for") };
        let (count, rows, depth, columns) = (3, 16, 24, 40);
        let (left, right) = (Matrix::random(rows, count * depth, 1), Matrix::random(depth, columns, 2));
        let on_gpu =
            |m: &Matrix| Tensor::new(&device, (m.rows, m.columns), &m.values, Element::Bf16).unwrap();
        let out = Tensor::zeros(&device, count * rows, columns, Element::F32).unwrap();
        let (left_there, right_there) = (on_gpu(&left), on_gpu(&right));
        let product = Product {
            rows,
            columns,
            depth,
            left: left_there.operand(),
            right: right_there.operand(),
            out: out.operand(),
            accumulate: true,
            bias: 0,
        };
        cuda.products(&product, Repeat { count, left: depth, right: 0, out: rows * columns }).unwrap();
        let mut expected = Vec::new();
        for (which, row) in (0..count * rows).map(|i| (i / rows, i % rows)) {
            let left = &left.values[row * left.columns + which * depth..][..depth];
            let sum = |column| {
                let right = right.values.iter().skip(column).step_by(columns);
                left.iter().zip(right).map(|(a, b)| a * b).sum::<f32>()
            };
            expected.extend((0..columns).map(sum));
        }
        let error = relative_error(&out.to_vec().unwrap(), &expected);
        assert!(error < 1e-5, "{error}");
    }
}

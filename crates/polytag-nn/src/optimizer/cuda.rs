//! AdamW on a GPU: three kernels a step, and no wait.

use super::layout::{Segment, tiles};
use super::{Setting, TILE};
use crate::cuda::{Buffer, Cuda, KernelSource, Launch};
use crate::device::Device;
use crate::element::Element;
use crate::error::Error;
use crate::parameters::Arenas;
use crate::tensor::Tensor;

const KERNELS: KernelSource = KernelSource { module: "adamw", text: include_str!("adamw.cu"), define: "" };

/// What the kernels keep between steps: the first step that was refused, and what gradients are multiplied by.
const STATUS_BYTES: usize = 16;

/// What the device has besides weights and moments.
pub(super) struct OnGpu {
    cuda: Cuda,
    layout: Vec<Segment>,
    tiles: Buffer,
    tile_count: usize,
    settings: Buffer,
    status: Buffer,
    partial: Buffer,
    blocks: usize,
}

impl OnGpu {
    pub(super) fn new(cuda: &Cuda, settings: usize) -> Result<OnGpu, Error> {
        let blocks = 8 * cuda.multiprocessors();
        let mut status = Buffer::take(cuda, STATUS_BYTES)?;
        status.clear(0, STATUS_BYTES)?;
        Ok(OnGpu {
            layout: Vec::new(),
            tiles: Buffer::take(cuda, 16)?,
            tile_count: 0,
            settings: Buffer::take(cuda, settings.max(1) * size_of::<[f32; 8]>())?,
            status,
            partial: Buffer::take(cuda, 8 * blocks)?,
            blocks,
            cuda: cuda.clone(),
        })
    }

    /// Asks for a step, and gives where its norm will be.
    pub(super) fn step(
        &mut self,
        arenas: Arenas<'_>,
        (first, second): (&mut Tensor, &mut Tensor),
        (segments, settings): (&[Segment], &[Setting]),
        (step, clip): (u64, Option<f32>),
    ) -> Result<Tensor, Error> {
        if self.layout != segments {
            let tiles = tiles(segments, TILE);
            self.tile_count = tiles.len();
            if !tiles.is_empty() {
                self.tiles = Buffer::upload(&self.cuda, &tiles)?;
            }
            self.layout = segments.to_vec();
        }
        let numbers: Vec<[f32; 8]> = settings.iter().map(Setting::numbers).collect();
        self.settings.write(0, &numbers)?;
        Launch::new(&self.cuda, &KERNELS, "squared_norm")
            .shape(self.blocks, 1, 256)
            .address(arenas.gradients.address())
            .buffer(&self.tiles)
            .int(self.tile_count)
            .buffer(&self.partial)
            .run()?;
        let norm = Tensor::scratch(&Device::Cuda(self.cuda.clone()), 1, 1, Element::F32)?;
        Launch::new(&self.cuda, &KERNELS, "finish_norm")
            .shape(1, 1, 1024)
            .buffer(&self.partial)
            .int(self.blocks)
            .buffer(&self.status)
            .address(norm.address())
            .long(step as usize)
            .float(clip.unwrap_or(0.0))
            .run()?;
        let halves = arenas.halves.expect("weights on a GPU have a copy in bf16");
        Launch::new(&self.cuda, &KERNELS, "update")
            .shape(self.tile_count, 1, 256)
            .address(arenas.gradients.address())
            .address(first.address())
            .address(second.address())
            .address(arenas.masters.address())
            .address(halves.address())
            .buffer(&self.tiles)
            .buffer(&self.settings)
            .buffer(&self.status)
            .run()?;
        Ok(norm)
    }

    /// Waits, and gives the first step that was refused, if one was. Steps are taken again from then on.
    pub(super) fn take_refused(&mut self) -> Result<Option<u64>, Error> {
        let mut refused = [0u64];
        self.status.read(0, &mut refused)?;
        if refused[0] == 0 {
            return Ok(None);
        }
        self.status.clear(0, STATUS_BYTES)?;
        Ok(Some(refused[0]))
    }
}

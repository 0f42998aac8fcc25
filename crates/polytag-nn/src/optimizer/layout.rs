//! Which settings apply to which weights, as runs of the memory that all weights lie in.

use std::ops::Range;

use crate::parameters::ParameterInfo;

/// A run of weights with the same settings. It begins and ends where a weight may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) weights: Range<usize>,
    /// Which of the settings: two for each group, the second one with decay.
    pub(super) setting: usize,
}

/// The weights that are trained, in as few runs as there can be. `end` is where the last weight's memory ends.
pub(super) fn segments(infos: &[ParameterInfo], end: usize) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    let ends = infos.iter().skip(1).map(ParameterInfo::offset).chain([end]);
    for (info, end) in infos.iter().zip(ends).filter(|(info, _)| info.trained) {
        // The gap up to the next weight is zero, has a gradient of zero, and stays zero.
        let (weights, setting) = (info.offset()..end, 2 * info.group + usize::from(info.decays));
        match segments.last_mut() {
            Some(last) if last.setting == setting && last.weights.end == weights.start => {
                last.weights.end = weights.end;
            }
            _ => segments.push(Segment { weights, setting }),
        }
    }
    segments
}

/// What one block of a GPU takes, as the kernels read it: first weight, number of weights, setting, nothing.
pub(super) fn tiles(segments: &[Segment], length: usize) -> Vec<[u32; 4]> {
    let fits = |count: usize| u32::try_from(count).expect("there are fewer than 2^32 weights");
    let of_segment = |segment: &Segment| {
        let (Range { start, end }, setting) = (segment.weights.clone(), segment.setting);
        (start..end)
            .step_by(length)
            .map(move |first| [fits(first), fits(length.min(end - first)), fits(setting), 0])
            .collect::<Vec<_>>()
    };
    segments.iter().flat_map(of_segment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::parameters::ParametersBuilder;

    #[test]
    fn like_neighbours_are_one_run_and_frozen_ones_none() {
        let mut builder = ParametersBuilder::default();
        let ids: Vec<_> = [(2, 40), (3, 10), (1, 5), (2, 2), (2, 3)]
            .iter()
            .map(|&(rows, columns)| builder.add("w", (rows, columns), &vec![0.0; rows * columns]))
            .collect();
        builder.info_mut(ids[3]).trained = false;
        builder.info_mut(ids[4]).group = 1;
        let mut parameters = builder.build(&Device::cpu()).unwrap();
        let arenas = parameters.arenas().unwrap();
        let segments = segments(arenas.infos, arenas.masters.columns());
        let expected = [(0..192, 1), (192..256, 0), (320..384, 3)];
        let expected = expected.map(|(weights, setting)| Segment { weights, setting });
        assert_eq!(segments, expected);
        assert_eq!(
            tiles(&segments, 128),
            [[0, 128, 1, 0], [128, 64, 1, 0], [192, 64, 0, 0], [320, 64, 3, 0]]
        );
    }
}

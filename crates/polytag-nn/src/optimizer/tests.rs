use super::*;
use crate::op::testing::{Matrix, devices, gpu, relative_error};
use crate::parameters::{ParameterId, ParametersBuilder};

const SHAPES: [(usize, usize); 5] = [(30, 70), (1, 70), (8, 9), (1, 3), (200, 64)];

/// What gradients are shortened to.
const CLIP: f32 = 20.0;

fn groups() -> Vec<Group> {
    vec![
        Group { learning_rate: 1e-2, weight_decay: 0.1, ..Group::default() },
        Group { learning_rate: 3e-3, weight_decay: 0.2, betas: (0.8, 0.95), epsilon: 1e-6 },
    ]
}

/// Five weights: the third of the second group, the fourth frozen.
fn weights(device: &Device) -> (Parameters, Vec<ParameterId>) {
    let mut builder = ParametersBuilder::default();
    let ids: Vec<ParameterId> = SHAPES
        .iter()
        .zip(1..)
        .map(|(&(rows, columns), seed)| {
            builder.add(&format!("w{seed}"), (rows, columns), &Matrix::random(rows, columns, seed).values)
        })
        .collect();
    builder.info_mut(ids[2]).group = 1;
    builder.info_mut(ids[3]).trained = false;
    (builder.build(device).unwrap(), ids)
}

fn gradient(which: usize, step: u64) -> Vec<f32> {
    let (rows, columns) = SHAPES[which];
    Matrix::random(rows, columns, 100 * step + which as u64).scaled(0.05 * step as f32, 0.01).values
}

/// Writes a gradient as a backward pass would.
fn write_gradient(parameters: &mut Parameters, id: ParameterId, values: &[f32]) {
    parameters.begin_gradients().unwrap();
    match parameters.device().clone() {
        Device::Cpu(_) => parameters.gradient(id).0.copy_from_slice(values),
        Device::Cuda(_) => {
            parameters.gradient_operand(id);
            let offset = parameters.info(id).offset();
            let arenas = parameters.arenas().unwrap();
            arenas.gradients.buffer_mut().write(4 * offset, values).unwrap();
        }
    }
}

/// Takes a step with the gradients of its number.
fn take_step(
    optimizer: &mut AdamW,
    parameters: &mut Parameters,
    ids: &[ParameterId],
) -> Result<StepReport, Error> {
    let step = optimizer.steps() + 1;
    for (which, &id) in ids.iter().enumerate().filter(|&(which, _)| which != 3) {
        write_gradient(parameters, id, &gradient(which, step));
    }
    optimizer.step(parameters, 1.0 / step as f32, Some(CLIP))
}

fn all_weights(parameters: &Parameters, ids: &[ParameterId]) -> Vec<Vec<f32>> {
    ids.iter().map(|&id| parameters.to_vec(id).unwrap()).collect()
}

/// AdamW word for word: the weights after `steps` steps, and each step's norm.
fn exact(steps: u64) -> (Vec<Vec<f64>>, Vec<f64>) {
    let groups = groups();
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
    let mut weights: Vec<Vec<f64>> = SHAPES
        .iter()
        .zip(1..)
        .map(|(&(rows, columns), seed)| wide(Matrix::random(rows, columns, seed).values))
        .collect();
    let mut moments: Vec<Vec<(f64, f64)>> = weights.iter().map(|w| vec![(0.0, 0.0); w.len()]).collect();
    let mut norms = Vec::new();
    for step in 1..=steps {
        let gradients: Vec<Vec<f64>> = (0..5).map(|which| wide(gradient(which, step))).collect();
        let trained = [0, 1, 2, 4];
        let norm = trained.iter().flat_map(|&which| &gradients[which]).map(|g| g * g).sum::<f64>().sqrt();
        norms.push(norm);
        for which in trained {
            let group = &groups[usize::from(which == 2)];
            let rate = group.learning_rate / step as f64;
            let decay = if SHAPES[which].0 > 1 { group.weight_decay } else { 0.0 };
            let (beta1, beta2) = group.betas;
            for (place, weight) in weights[which].iter_mut().enumerate() {
                let gradient = gradients[which][place] * (f64::from(CLIP) / norm).min(1.0);
                let (m, v) = &mut moments[which][place];
                *m = beta1 * *m + (1.0 - beta1) * gradient;
                *v = beta2 * *v + (1.0 - beta2) * gradient * gradient;
                let corrected = *m / (1.0 - beta1.powi(step as i32));
                let root = (*v / (1.0 - beta2.powi(step as i32))).sqrt();
                *weight -= rate * decay * *weight;
                *weight -= rate * corrected / (root + group.epsilon);
            }
        }
    }
    (weights, norms)
}

#[test]
fn steps_are_those_of_the_formula() {
    let (expected, norms) = exact(6);
    assert!(
        norms[0] < f64::from(CLIP) && norms[5] > f64::from(CLIP),
        "some gradients are clipped: {norms:?}"
    );
    for device in devices("AdamW") {
        let (mut parameters, ids) = weights(&device);
        let mut optimizer = AdamW::new(&mut parameters, groups()).unwrap();
        for norm in &norms {
            let report = take_step(&mut optimizer, &mut parameters, &ids).unwrap();
            let found = f64::from(report.gradient_norm().unwrap());
            assert!((found - norm).abs() < 1e-5 * norm, "{found} {norm}");
        }
        optimizer.settle().unwrap();
        for (found, expected) in all_weights(&parameters, &ids).iter().zip(&expected) {
            for (found, expected) in found.iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} {expected}");
            }
        }
        let frozen = Matrix::random(SHAPES[3].0, SHAPES[3].1, 4).values;
        assert_eq!(parameters.to_vec(ids[3]).unwrap(), frozen);
        assert!(
            parameters.gradient_to_vec(ids[0]).unwrap().iter().all(|&g| g == 0.0),
            "gradients are forgotten"
        );
    }
}

#[test]
fn a_state_that_is_put_back_goes_on_to_the_same_bytes() {
    for device in devices("AdamW's state") {
        let (mut parameters, ids) = weights(&device);
        let mut optimizer = AdamW::new(&mut parameters, groups()).unwrap();
        for _ in 0..3 {
            take_step(&mut optimizer, &mut parameters, &ids).unwrap();
        }
        let (state, kept) = (optimizer.state().unwrap(), all_weights(&parameters, &ids));
        for _ in 0..2 {
            take_step(&mut optimizer, &mut parameters, &ids).unwrap();
        }
        let straight = (optimizer.state().unwrap(), all_weights(&parameters, &ids));
        for (&id, values) in ids.iter().zip(&kept) {
            parameters.set(id, values).unwrap();
        }
        optimizer.restore(&state).unwrap();
        for _ in 0..2 {
            take_step(&mut optimizer, &mut parameters, &ids).unwrap();
        }
        assert_eq!((optimizer.state().unwrap(), all_weights(&parameters, &ids)), straight);
        let other = AdamWState { steps: 1, first: vec![0.0; 3], second: vec![0.0; 3] };
        assert!(optimizer.restore(&other).unwrap_err().to_string().contains("another model"));
    }
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    for device in devices("a gradient that is not finite") {
        let (mut parameters, ids) = weights(&device);
        let mut optimizer = AdamW::new(&mut parameters, groups()).unwrap();
        take_step(&mut optimizer, &mut parameters, &ids).unwrap();
        let before = (optimizer.state().unwrap(), all_weights(&parameters, &ids));
        let mut bad = vec![0.0; 70];
        bad[5] = f32::NAN;
        write_gradient(&mut parameters, ids[1], &bad);
        // On a GPU the step is asked for, and so is the next one; neither is taken.
        let error = optimizer
            .step(&mut parameters, 1.0, None)
            .and_then(|_| take_step(&mut optimizer, &mut parameters, &ids))
            .and_then(|_| optimizer.settle())
            .unwrap_err()
            .to_string();
        assert!(error.contains("at step 2"), "{error}");
        assert_eq!((optimizer.state().unwrap(), all_weights(&parameters, &ids)), before);
        take_step(&mut optimizer, &mut parameters, &ids).unwrap();
        assert_eq!(optimizer.state().unwrap().steps, 2);
        assert_ne!(all_weights(&parameters, &ids), before.1);
    }
}

#[test]
fn the_gpu_agrees_with_the_cpu_and_rounds_its_copy() {
    let Some(device) = gpu("AdamW beside the CPU's") else { return };
    let run = |device: &Device| {
        let (mut parameters, ids) = weights(device);
        let mut optimizer = AdamW::new(&mut parameters, groups()).unwrap();
        for _ in 0..40 {
            take_step(&mut optimizer, &mut parameters, &ids).unwrap();
        }
        (parameters, ids)
    };
    let (expected, _) = run(&Device::cpu());
    let (mut found, ids) = run(&device);
    for &id in &ids {
        let error = relative_error(&found.to_vec(id).unwrap(), &expected.to_vec(id).unwrap());
        assert!(error < 1e-5, "{error}");
    }
    let arenas = found.arenas().unwrap();
    let halves = arenas.halves.unwrap().to_vec().unwrap();
    let rounded = arenas.masters.to_vec().unwrap().into_iter().map(|w| half::bf16::from_f32(w).to_f32());
    assert_eq!(halves, rounded.collect::<Vec<f32>>());
}

#[test]
fn settings_that_are_not_possible_are_refused() {
    let (mut parameters, ids) = weights(&Device::cpu());
    for group in [
        Group { learning_rate: f64::NAN, ..Group::default() },
        Group { weight_decay: -1.0, ..Group::default() },
        Group { betas: (0.9, 1.0), ..Group::default() },
        Group { epsilon: 0.0, ..Group::default() },
    ] {
        assert!(AdamW::new(&mut parameters, vec![Group::default(), group]).is_err());
    }
    let error = AdamW::new(&mut parameters, vec![Group::default()]).err().unwrap().to_string();
    assert!(error.contains(&parameters.info(ids[2]).name) && error.contains("group 1"), "{error}");
}

//! Attention against plain sums in `f64`, and its gradients against finite differences.

use super::backward::attention_backward_in;
use super::forward::attention_in;
use super::*;
use crate::cpu::simd::Set;
use crate::cpu::testing::{bits, random, same_with_any_threads};
use crate::random::{Dropout, Key, PairedDropout};

struct Case {
    offsets: Vec<u32>,
    heads: usize,
    head_dim: usize,
    qkv: Vec<f32>,
    bias: Option<Vec<f32>>,
    dropout: Option<PairedDropout>,
}

impl Case {
    fn new(lengths: &[u32], heads: usize, head_dim: usize) -> Case {
        let mut offsets = vec![0];
        for length in lengths {
            offsets.push(offsets[offsets.len() - 1] + length);
        }
        let tokens = offsets[lengths.len()] as usize;
        let qkv = random(3 * tokens * heads * head_dim, 1);
        Case { offsets, heads, head_dim, qkv, bias: None, dropout: None }
    }

    fn with_bias_and_dropout(mut self) -> Case {
        self.bias = Some(random(self.heads * (2 * SPAN + 1), 2));
        self.dropout = Dropout::new(0.3, Key::new(5)).and_then(PairedDropout::new);
        self
    }

    fn attention(&self) -> Attention<'_> {
        Attention {
            offsets: &self.offsets,
            heads: self.heads,
            head_dim: self.head_dim,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            bias: self.bias.as_deref(),
            dropout: self.dropout,
        }
    }

    fn tokens(&self) -> usize {
        self.offsets[self.offsets.len() - 1] as usize
    }

    /// Output and sums, the plain way.
    fn plain(&self) -> (Vec<f64>, Vec<f64>) {
        let (tokens, hidden) = (self.tokens(), self.heads * self.head_dim);
        let (mut out, mut sums) = (vec![0.0; tokens * hidden], vec![0.0; self.heads * tokens]);
        let scale = f64::from(self.attention().scale);
        let number = |token: usize, part: usize, head: usize, i: usize| {
            f64::from(self.qkv[token * 3 * hidden + part * hidden + head * self.head_dim + i])
        };
        for pair in self.offsets.windows(2) {
            let (first, last) = (pair[0] as usize, pair[1] as usize);
            for (head, query) in
                (0..self.heads).flat_map(|head| (first..last).map(move |query| (head, query)))
            {
                let score = |key: usize| {
                    let product: f64 =
                        (0..self.head_dim).map(|i| number(query, 0, head, i) * number(key, 1, head, i)).sum();
                    let place = head * (2 * SPAN + 1) + SPAN + key - query;
                    product * scale + self.bias.as_ref().map_or(0.0, |bias| f64::from(bias[place]))
                };
                let sum: f64 = (first..last).map(|key| score(key).exp()).sum();
                sums[head * tokens + query] = sum.ln();
                for key in first..last {
                    let row = (query * self.heads + head) as u32;
                    let mask = self.dropout.map_or(1.0, |dropout| dropout.factor(row, (key - first) as u32));
                    let probability = score(key).exp() / sum * f64::from(mask);
                    for i in 0..self.head_dim {
                        out[query * hidden + head * self.head_dim + i] +=
                            probability * number(key, 2, head, i);
                    }
                }
            }
        }
        (out, sums)
    }

    fn forward(&self, set: Set) -> (Vec<f32>, Vec<f32>) {
        let mut out = vec![0.0; self.tokens() * self.heads * self.head_dim];
        let mut sums = vec![0.0; self.tokens() * self.heads];
        attention_in(set, &self.attention(), &self.qkv, (&mut out, Some(&mut sums)));
        (out, sums)
    }

    fn backward(&self, set: Set, d_out: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (out, log_sums) = self.forward(set);
        let mut d_qkv = vec![f32::NAN; self.qkv.len()];
        let mut d_bias = vec![0.0; self.heads * (2 * SPAN + 1)];
        let saved = AttentionSaved { qkv: &self.qkv, out: &out, log_sums: &log_sums };
        let bias = self.bias.is_some().then_some(&mut d_bias[..]);
        let gradients = AttentionGradients { qkv: &mut d_qkv, bias };
        attention_backward_in(set, &self.attention(), (saved, d_out), gradients);
        (d_qkv, d_bias)
    }

    fn loss(&self, d_out: &[f32]) -> f64 {
        self.plain().0.iter().zip(d_out).map(|(out, &d_out)| out * f64::from(d_out)).sum()
    }
}

#[test]
fn outputs_and_sums_agree_with_plain_ones() {
    let cases = [
        Case::new(&[1], 1, 1),
        Case::new(&[5, 0, 1, 33], 2, 7),
        Case::new(&[100, 15], 3, 32),
        Case::new(&[20, 70], 2, 64).with_bias_and_dropout(),
        Case::new(&[150, 512], 1, 40).with_bias_and_dropout(),
        Case::new(&[], 1, 8),
    ];
    for (index, case) in cases.iter().enumerate() {
        let (plain, plain_sums) = case.plain();
        for set in Set::all() {
            let (out, sums) = case.forward(set);
            for (out, plain) in out.iter().zip(&plain).chain(sums.iter().zip(&plain_sums)) {
                assert!((f64::from(*out) - plain).abs() < 1e-5, "{index} {set:?} {out} {plain}");
            }
        }
    }
}

#[test]
fn gradients_agree_with_finite_differences() {
    let cases = [Case::new(&[3, 1, 9], 2, 5), Case::new(&[2, 8], 2, 6).with_bias_and_dropout()];
    for mut case in cases {
        let d_out = random(case.tokens() * case.heads * case.head_dim, 3);
        let all: Vec<_> = Set::all().into_iter().map(|set| (set, case.backward(set, &d_out))).collect();
        for index in 0..case.qkv.len() {
            let before = case.qkv[index];
            case.qkv[index] = before + 1e-3;
            let above = case.loss(&d_out);
            case.qkv[index] = before - 1e-3;
            let slope = (above - case.loss(&d_out)) / 2e-3;
            case.qkv[index] = before;
            for (set, (d_qkv, _)) in &all {
                assert!(
                    (f64::from(d_qkv[index]) - slope).abs() < 1e-4,
                    "{set:?} {index} {} {slope}",
                    d_qkv[index]
                );
            }
        }
        for place in
            (0..case.heads).flat_map(|head| (SPAN - 8..SPAN + 9).map(move |at| head * (2 * SPAN + 1) + at))
        {
            let Some(before) = case.bias.as_ref().map(|bias| bias[place]) else { break };
            let mut loss = |value: f32| {
                case.bias.as_mut().expect("there is one")[place] = value;
                case.loss(&d_out)
            };
            let slope = (loss(before + 1e-3) - loss(before - 1e-3)) / 2e-3;
            loss(before);
            for (set, (_, d_bias)) in &all {
                assert!(
                    (f64::from(d_bias[place]) - slope).abs() < 1e-4,
                    "{set:?} {place} {} {slope}",
                    d_bias[place]
                );
            }
        }
    }
}

#[test]
fn long_sequences_have_the_gradients_of_one_block_of_queries() {
    // Whatever set cuts the queries into other blocks must agree with the others.
    let case = Case::new(&[130, 40], 2, 32).with_bias_and_dropout();
    let d_out = random(case.tokens() * 64, 3);
    let (plain, plain_bias) = case.backward(Set::all()[0], &d_out);
    for set in Set::all() {
        let (d_qkv, d_bias) = case.backward(set, &d_out);
        for (a, b) in d_qkv.iter().zip(&plain).chain(d_bias.iter().zip(&plain_bias)) {
            assert!((a - b).abs() < 1e-4, "{set:?} {a} {b}");
        }
    }
}

#[test]
fn threads_change_no_byte() {
    let lengths: Vec<u32> = (0..30).map(|i| 20 + i * 7 % 90).collect();
    let case = Case::new(&lengths, 3, 16).with_bias_and_dropout();
    let d_out = random(case.tokens() * 48, 3);
    same_with_any_threads(|| {
        let ((out, sums), (d_qkv, d_bias)) = (case.forward(Set::best()), case.backward(Set::best(), &d_out));
        [out, sums, d_qkv, d_bias].map(|x| bits(&x))
    });
}

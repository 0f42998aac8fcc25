//! The best combination for one unseen label, exactly, by branch and bound.
//!
//! Let `a` be the products of the weighted label vectors with the unseen label's unit vector and `G` those with each
//! other. A combination, as a vector `x` of zeros and ones, has the cosine `a·x / √(x·G·x)`, and it beats `θ` where
//!
//! ```text
//! f(x) = a·x − θ·‖V x‖ > 0,    ‖V x‖ = √(x·G·x)
//! ```
//!
//! `f` is concave for θ ≥ 0, and ‖V x‖ ≥ w·V x for every unit vector `w`. With `w` the direction of *any* point `y`, be it
//! between 0 and 1, this is a bound that falls apart into labels:
//!
//! ```text
//! f(x) ≤ Σ x_i b_i,    b_i = a_i − θ·(G y)_i / √(y·G·y)
//! ```
//!
//! so that no combination of a node beats θ where the `b_i` of its members and the positive ones of its undecided labels
//! add up to no more than 0, and a label is decided by its sign where the bound is no more than its |b_i|. A few rounds of
//! coordinate ascent, each step in closed form, bring `y` near the top of `f`, where the bound is tight. What is left
//! undecided is branched on, and few labels are walked through one by one. On label vectors of encoders some ten to thirty
//! nodes are visited for an unseen label and 25 labels, which have 2^25 combinations.
//!
//! θ below 0 needs no search: where all products are negative, the best combination is one label, as
//! `Σ|a_i| / ‖Σ v_i‖ ≥ Σ|a_i| / Σ‖v_i‖ ≥ min |a_i| / ‖v_i‖`.

use super::gram::{Gram, NOTHING, Sum, add, each};

/// How much a cosine must be better to be searched for. Without it, vectors of two or three numbers, whose combinations
/// come arbitrarily near to anything, take long for nothing.
const NEAR: f64 = 1e-6;

/// Undecided labels whose combinations are walked through one by one.
const FEW: u32 = 6;

/// Rounds of coordinate ascent before the first branching, and before others.
const ROUNDS: (usize, usize) = (6, 2);

/// The best combination for an unseen label whose products with the labels are `dots`; its cosine and its members.
pub(super) fn best<const N: usize>(gram: &Gram<N>, dots: &[f64; N]) -> (f64, u64) {
    let mut search = Search::start(gram, dots);
    if search.cosine > 0.0 {
        search.climb();
        let root = search.root();
        search.visit(root, ROUNDS.0);
    }
    (search.cosine, search.members)
}

/// A search, with the best combination so far.
pub(super) struct Search<'a, const N: usize> {
    gram: &'a Gram<N>,
    dots: &'a [f64; N],
    pub(super) cosine: f64,
    pub(super) members: u64,
}

/// A part of all combinations: some labels are in, some are undecided, the others are out.
#[derive(Clone)]
struct Node<const N: usize> {
    taken: u64,
    free: u64,
    /// A point between the combinations.
    point: [f64; N],
    /// The products of all labels with it.
    shared: [f64; N],
}

impl<const N: usize> Node<N> {
    /// The squared length of the point; nothing, where it is too short to have a direction.
    fn square(&self, gram: &Gram<N>) -> Option<f64> {
        let (mut square, mut parts) = (0.0, 0.0);
        for ((point, shared), own) in self.point.iter().zip(&self.shared).zip(gram.diagonal()) {
            square += point * shared;
            parts += point * point * own;
        }
        (square > NOTHING * parts).then_some(square)
    }

    fn put(&mut self, gram: &Gram<N>, label: usize, value: f64) {
        let step = value - self.point[label];
        if step != 0.0 {
            self.point[label] = value;
            add(&mut self.shared, gram.row(label), step);
        }
    }

    /// Decides a label.
    fn decide(&mut self, gram: &Gram<N>, label: usize, is_in: bool) {
        self.free &= !(1 << label);
        self.taken |= u64::from(is_in) << label;
        self.put(gram, label, if is_in { 1.0 } else { 0.0 });
    }
}

/// What a bound says of a node.
enum Verdict {
    Hopeless,
    /// So few labels are undecided that they are walked through.
    Few,
    Open,
}

impl<'a, const N: usize> Search<'a, N> {
    /// Begins with the best single label, the first of equals.
    pub(super) fn start(gram: &'a Gram<N>, dots: &'a [f64; N]) -> Search<'a, N> {
        let mut search = Search { gram, dots, cosine: f64::NEG_INFINITY, members: 0 };
        for label in 0..gram.labels() {
            let cosine = gram.with(Sum::default(), label, 0.0, dots).cosine();
            if cosine > search.cosine {
                (search.cosine, search.members) = (cosine, 1 << label);
            }
        }
        search
    }

    /// Takes labels in or out, one at a time, as long as that makes the combination better.
    pub(super) fn climb(&mut self) {
        let mut sum = self.gram.sum(self.members, self.dots);
        let mut shared = self.gram.shared(self.members);
        loop {
            let (mut found, mut cosine) = (None, self.cosine + NEAR * 1e-3);
            for (label, shared) in shared.iter().enumerate().take(self.gram.labels()) {
                let is_in = self.members >> label & 1 == 1;
                let (sign, own) = (if is_in { -1.0 } else { 1.0 }, self.gram.diagonal()[label]);
                let other = Sum {
                    dot: sum.dot + sign * self.dots[label],
                    square: sum.square + 2.0 * sign * shared + own,
                    parts: sum.parts + sign * own,
                };
                if other.cosine() > cosine {
                    (found, cosine) = (Some((label, sign)), other.cosine());
                }
            }
            let Some((label, sign)) = found else { return };
            let members = self.members ^ 1 << label;
            // Summed up anew: what is taken out and put in again would leave rounding behind.
            sum = self.gram.sum(members, self.dots);
            if !self.offer(members, sum) {
                return;
            }
            add(&mut shared, self.gram.row(label), sign);
        }
    }

    /// All combinations of labels that have a length.
    fn root(&self) -> Node<N> {
        let lengths = self.gram.diagonal().iter().enumerate();
        let free = lengths.filter(|(_, own)| **own > 0.0).map(|(label, _)| 1 << label).sum();
        let point = std::array::from_fn(|label| (self.members >> label & 1) as f64);
        Node { taken: 0, free, point, shared: self.gram.shared(self.members) }
    }

    /// Keeps a combination if it is better.
    fn offer(&mut self, members: u64, sum: Sum) -> bool {
        let is_better = sum.dot > 0.0
            && sum.dot * sum.dot > self.cosine * self.cosine * sum.square
            && sum.has_length()
            && sum.cosine() > self.cosine;
        if is_better {
            (self.cosine, self.members) = (sum.cosine(), members);
        }
        is_better
    }

    fn visit(&mut self, mut node: Node<N>, rounds: usize) {
        for round in 0..=rounds {
            match self.judge(&mut node) {
                Verdict::Hopeless => return,
                Verdict::Few => return self.walk_through(&node),
                Verdict::Open if round < rounds => self.ascend(&mut node),
                Verdict::Open => {}
            }
        }
        let between = |label: usize| {
            let point = node.point[label];
            (point.min(1.0 - point) + NEAR) * self.gram.diagonal()[label].sqrt()
        };
        let most = each(node.free).map(|(label, _)| label).max_by(|a, b| between(*a).total_cmp(&between(*b)));
        let Some(label) = most else { return self.walk_through(&node) };
        self.round(&node);
        let is_in = node.point[label] >= 0.5;
        let mut first = node.clone();
        first.decide(self.gram, label, is_in);
        self.visit(first, ROUNDS.1);
        node.decide(self.gram, label, !is_in);
        self.visit(node, ROUNDS.1);
    }

    /// Bounds a node, and decides the labels that the bound decides.
    fn judge(&self, node: &mut Node<N>) -> Verdict {
        let Some(square) = node.square(self.gram) else {
            return if node.free.count_ones() <= FEW { Verdict::Few } else { Verdict::Open };
        };
        let by_length = (self.cosine + NEAR) / square.sqrt();
        let gains: [f64; N] = std::array::from_fn(|label| self.dots[label] - by_length * node.shared[label]);
        let taken: f64 = each(node.taken).map(|(label, _)| gains[label]).sum();
        let bound = taken + each(node.free).map(|(label, _)| gains[label].max(0.0)).sum::<f64>();
        if bound <= 0.0 {
            return Verdict::Hopeless;
        }
        for (label, _) in each(node.free) {
            if bound <= gains[label].abs() {
                node.decide(self.gram, label, gains[label] > 0.0);
            }
        }
        if node.free.count_ones() <= FEW { Verdict::Few } else { Verdict::Open }
    }

    /// Moves the point of a node up, one undecided label after the other. For one label, with `g` its own product, `c` that
    /// with the point, `s` the point's squared length and `r = s − c²/g`, the top is where
    /// `a = θ·g·z / √(g·z² + r)`, `z` being the distance from `−c/g`.
    fn ascend(&self, node: &mut Node<N>) {
        let Some(mut square) = node.square(self.gram) else { return };
        let bar = self.cosine + NEAR;
        for (label, _) in each(node.free) {
            let (own, shared, dot) = (self.gram.diagonal()[label], node.shared[label], self.dots[label]);
            let room = bar * bar * own - dot * dot;
            let value = if room > 0.0 {
                let rest = (square - shared * shared / own).max(0.0);
                (node.point[label] - shared / own + dot * (rest / (own * room)).sqrt()).clamp(0.0, 1.0)
            } else {
                f64::from(u8::from(dot > 0.0))
            };
            let step = value - node.point[label];
            square += step * (2.0 * shared + step * own);
            node.put(self.gram, label, value);
        }
    }

    /// Tries the combination nearest to the point of a node.
    fn round(&mut self, node: &Node<N>) {
        let near = node.point.iter().enumerate().filter(|(_, point)| **point >= 0.5);
        let members = near.map(|(label, _)| 1 << label).sum();
        self.offer(members, self.gram.sum(members, self.dots));
    }

    /// Tries all combinations of a node.
    fn walk_through(&mut self, node: &Node<N>) {
        let sum = self.gram.sum(node.taken, self.dots);
        self.offer(node.taken, sum);
        let shared = self.gram.shared(node.taken);
        self.walk((node.taken, node.free), sum, &shared);
    }

    fn walk(&mut self, (taken, free): (u64, u64), sum: Sum, shared: &[f64; N]) {
        for (label, later) in each(free) {
            let members = taken | 1 << label;
            let with = self.gram.with(sum, label, shared[label], self.dots);
            self.offer(members, with);
            if later != 0 {
                let mut further = *shared;
                each(later).for_each(|(other, _)| further[other] += self.gram.row(label)[other]);
                self.walk((members, later), with, &further);
            }
        }
    }
}

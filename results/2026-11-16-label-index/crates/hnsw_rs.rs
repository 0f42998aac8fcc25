use hnsw_rs::prelude::*;
use std::io::Write;
use std::time::Instant;
fn load(p: &str) -> Vec<f32> {
    let b = std::fs::read(p).unwrap();
    let h = u16::from_le_bytes(b[8..10].try_into().unwrap()) as usize;
    b[10 + h..].chunks_exact(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect()
}
fn rss() -> u64 {
    std::fs::read_to_string("/proc/self/status")
        .unwrap()
        .lines()
        .find(|l| l.starts_with("VmRSS"))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let dim = 384;
    let (l, q) = (load(&a[1]), load(&a[2]));
    let rows: Vec<Vec<f32>> = l.chunks_exact(dim).map(|c| c.to_vec()).collect();
    let qs: Vec<Vec<f32>> = q.chunks_exact(dim).map(|c| c.to_vec()).collect();
    drop(l);
    let t = Instant::now();
    let h = Hnsw::<f32, DistDot>::new(24, rows.len(), 16, 200, DistDot {});
    let data: Vec<(&[f32], usize)> = rows.iter().enumerate().map(|(i, r)| (r.as_slice(), i)).collect();
    h.parallel_insert_slice(&data);
    println!("hnsw_rs build {:.1}s rss {} MB", t.elapsed().as_secs_f64(), rss());
    for ef in [128, 192, 256, 320, 400, 512] {
        let t = Instant::now();
        let r = h.parallel_search(&qs, 100, ef);
        let s = t.elapsed().as_secs_f64();
        let mut f = std::fs::File::create(format!("{}.{ef}", a[3])).unwrap();
        for n in &r {
            let mut ids: Vec<u32> = n.iter().map(|x| x.d_id as u32).collect();
            ids.resize(100, u32::MAX);
            for i in ids {
                f.write_all(&i.to_le_bytes()).unwrap();
            }
        }
        println!("hnsw_rs at {ef} {:.0} q/s", qs.len() as f64 / s);
    }
}

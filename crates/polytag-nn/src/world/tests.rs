//! Sums over CPUs, and what happens when one of them fails.

use std::io::Write as _;

use super::*;
use crate::element::Element;

fn cpus(count: usize) -> World {
    World::new((0..count).map(|_| Device::cpu()).collect()).unwrap()
}

fn summed(member: &Member, length: usize) -> Result<Vec<f32>, Error> {
    let value = |place: usize| (place as f32 + 0.1) * 10f32.powi(member.rank() as i32);
    let values: Vec<f32> = (0..length).map(value).collect();
    let mut tensor = Tensor::new(member.device(), (1, length), &values, Element::F32)?;
    member.sum(&mut tensor)?;
    tensor.to_vec()
}

#[test]
fn sums_are_those_of_all_ranks_in_their_order_and_the_same_for_all() {
    let length = 3 * CHUNK + 17;
    let world = cpus(3);
    let (first, others) = world
        .run(
            |member| {
                let own = summed(member, length)?;
                let others = member.exchange(own.clone())?;
                Ok::<_, Error>((own, others))
            },
            |member| {
                let own = summed(member, length)?;
                member.exchange(own).map(drop)
            },
        )
        .unwrap();
    for (place, sum) in first.iter().enumerate() {
        let value = |rank: i32| (place as f32 + 0.1) * 10f32.powi(rank);
        assert_eq!(sum.to_bits(), ((value(0) + value(1)) + value(2)).to_bits(), "{place}");
    }
    assert!(others.iter().all(|other| **other == first));
}

#[test]
fn the_error_of_the_device_that_failed_is_told_and_nobody_waits() {
    let failing = |rank: usize| {
        cpus(3).run(
            |member| {
                if rank == 0 {
                    return Err(Error::Unfit("rank 0 is full".to_owned()));
                }
                summed(member, 5)
            },
            |member| {
                if member.rank() == rank {
                    return Err(Error::Unfit(format!("rank {rank} is full")));
                }
                summed(member, 5).map(drop)
            },
        )
    };
    for rank in 0..3 {
        let error = failing(rank).unwrap_err().to_string();
        assert_eq!(error, format!("rank {rank} is full"));
    }
}

#[test]
#[should_panic(expected = "out of luck")]
fn a_panic_elsewhere_comes_through() {
    let others = |member: &Member| {
        if member.rank() == 1 {
            panic!("out of luck");
        }
        Ok(())
    };
    cpus(2).run(|member| summed(member, 5), others).ok();
}

#[test]
fn what_the_first_one_makes_is_for_all() {
    let told = cpus(2)
        .run(
            |member| member.of_first(|| Ok(7)).map(|made| *made),
            |member| {
                let made =
                    member.of_first(|| -> Result<i32, Error> { unreachable!("only the first one") })?;
                assert_eq!(*made, 7);
                Ok(())
            },
        )
        .unwrap();
    assert_eq!(told, 7);
}

#[test]
fn a_world_without_a_device_is_refused() {
    let error = World::new(Vec::new()).unwrap_err().to_string();
    assert!(error.contains("needs a device"), "{error}");
}

#[test]
fn a_gpu_cannot_train_with_a_cpu_or_with_itself() {
    let Some(gpu) = crate::op::testing::gpu("worlds that cannot be") else { return };
    let error = World::new(vec![Device::cpu(), gpu.clone()]).unwrap_err().to_string();
    assert!(error.contains("GPUs only"), "{error}");
    let error = World::new(vec![gpu.clone(), gpu]).unwrap_err().to_string();
    assert!(error.contains("named twice"), "{error}");
}

#[test]
fn a_gpu_alone_adds_up_to_the_same_bits() {
    let Some(gpu) = crate::op::testing::gpu("a world of one GPU") else { return };
    let world = match World::new(vec![gpu]) {
        Ok(world) => world,
        Err(why) => {
            writeln!(std::io::stderr(), "skipped on the GPU: a world of one ({why})").ok();
            return;
        }
    };
    let sums = world.run(|member| summed(member, 100_003), |_| Ok(())).unwrap();
    let same = |(place, sum): (usize, &f32)| sum.to_bits() == (place as f32 + 0.1).to_bits();
    assert!(sums.iter().enumerate().all(same));
}

//! `polytag demo`.

use crate::support::Lab;

#[test]
fn the_demo_tells_the_whole_story_and_can_be_told_twice() {
    let lab = Lab::new();
    for round in 0..2 {
        let told = lab.run("demo --dir here").done();
        for part in
            ["P@1 5", "nDCG@5 ", "ZSR@10 ", "What to try next", "polytag evaluate here/model here/task"]
        {
            assert!(told.contains(part), "round {round}: no {part:?} in\n{told}");
        }
        for example in ["4g8: ", "7zip: ", "gopher: "] {
            assert!(told.contains(example), "round {round}: no {example:?}");
        }
        assert_eq!(lab.names(""), ["here"]);
        assert_eq!(lab.names("here"), ["model", "task"]);
    }
}

#[test]
fn the_steps_that_the_demo_suggests_work() {
    let lab = Lab::new();
    let told = lab.run("demo --dir here").done();
    assert!(told.contains("labels here/model add --id use::beekeeping"));
    let bees = "Plan the year of your bees and hives";
    assert!(!lab.feed("predict here/model --plain", bees).done().contains("use::beekeeping"));
    lab.run_all(&["labels", "here/model", "add", "--id", "use::beekeeping", "--name", "Keeping bees"]).done();
    assert!(lab.feed("predict here/model --plain", bees).done().contains("use::beekeeping"));
    assert!(lab.run("inspect here/task").done().contains("617"));
    assert!(lab.run("evaluate here/model here/task --split test").done().contains("nDCG"));
}

#[test]
fn a_folder_with_something_else_in_it_is_left_alone() {
    let lab = Lab::new();
    lab.write("here/task/precious", "x");
    let complaint = lab.refuses("demo --dir here");
    assert!(complaint.contains("here/task: already exists and is not empty"), "{complaint}");
}

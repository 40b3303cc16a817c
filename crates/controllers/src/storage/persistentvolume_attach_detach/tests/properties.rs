//! Whatever pods, kubelets, attachers and managers do in whatever order: nothing is taken away that a ready node uses (which
//! [`Stage::may_go`] sees to with each delete), no volume for one node is asked for on two, and everything ends when nobody wants it.

use proptest::prelude::*;

use super::*;

const PLACES: [&str; 2] = ["n", "m"];
const VOLUMES: [&str; 2] = ["a", "b"];

/// Something that happens to a volume on a node.
fn happens(stage: &mut Stage, what: u8, volume: &str, node: &str) {
    let pod = format!("{volume}-{node}");
    match what {
        0 => stage.pod(&pod, node, &[volume]),
        1 => {
            if stage.world.all_pods.get(&Key::new("ns", pod.as_str())).is_some() {
                stage.pod_gone(&pod);
            }
        }
        2 => stage.uses(node, &[volume]),
        3 => stage.uses(node, &[]),
        4 => stage.is_dead(node),
        5 => stage.changed(node, |node| set_ready(node, true)),
        6 => {
            if stage.attachment(volume, node).is_some() {
                stage.is_attached(volume, node);
            }
        }
        7 => {
            if stage.attachment(volume, node).is_some_and(|found| found.metadata.is_deleting()) {
                stage.is_detached(volume, node);
            }
        }
        8 => stage.restarts(),
        9 => stage.refused = vec!["create", "delete", "patch"],
        10 => stage.refused.clear(),
        11 => stage.at += secs(130),
        // The cache is late.
        12 => {
            let mut live = stage.get_node(node);
            live.status.volumes_in_use = vec![unique(volume).into()];
            stage.live = vec![live];
        }
        13 => stage.live.clear(),
        _ => {
            if let Some(found) = stage.attachment(volume, node).filter(|found| !found.metadata.is_deleting())
            {
                let error = VolumeError { message: "no".into(), ..VolumeError::default() };
                let is_attached = found.status.attached;
                stage.attacher(volume, node, |found| {
                    found.status.attach_error = (!is_attached).then(|| Box::new(error));
                });
            }
        }
    }
}

proptest! {
    #[test]
    fn everything_that_is_unwanted_ends_and_nothing_that_is_used_goes(
        steps in prop::collection::vec((0_u8..15, 0_usize..2, 0_usize..2, any::<bool>()), 0..40),
    ) {
        let mut stage = Stage::new();
        for node in PLACES {
            stage.node(node);
        }
        for volume in VOLUMES {
            stage.bound(volume, &["ReadWriteOnce"]);
        }
        for (what, volume, node, looks) in steps {
            happens(&mut stage, what, VOLUMES[volume], PLACES[node]);
            if looks {
                stage.look(PLACES[node]);
            }
        }
        stage.refused.clear();
        stage.live.clear();
        for pod in stage.world.all_pods.list() {
            stage.pod_gone(&pod.metadata.name);
        }
        for _ in 0..12 {
            for node in PLACES {
                stage.uses(node, &[]);
                stage.look(node);
                for volume in VOLUMES {
                    happens(&mut stage, 7, volume, node);
                }
                stage.look(node);
            }
            stage.at += secs(130);
        }
        let left: Vec<String> = stage.world.attachments.list().iter().map(|found| plainly(found)).collect();
        prop_assert_eq!(left, Vec::<String>::new());
        for node in PLACES {
            prop_assert_eq!(stage.listed(node), Vec::<String>::new());
            prop_assert!(stage.view(node).book.held.is_empty());
        }
    }
}

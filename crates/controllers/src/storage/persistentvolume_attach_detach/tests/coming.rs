//! Volumes that come: attached once, told, listed; refused, timed out, and for one node only.

use super::*;

const DONE: &str = "ns/p: Normal SuccessfulAttachVolume AttachVolume.Attach succeeded for volume \"a\" ";

/// A pod that wants volume `a` on node `n`.
fn stage(modes: &[&str]) -> Stage {
    let mut stage = Stage::new();
    stage.node("n");
    stage.bound("a", modes);
    stage.pod("p", "n", &["a"]);
    stage
}

#[test]
fn a_volume_is_asked_for_told_and_listed() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.look("n");
    assert_eq!(stage.happened(), ["create a on n"]);
    assert_eq!(stage.look_in, Some(secs(120)));
    stage.at = secs(60);
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "it is waited for");
    assert_eq!(stage.look_in, Some(secs(60)));
    stage.is_attached("a", "n");
    stage.look("n");
    assert_eq!(stage.happened(), [DONE, "n lists [a]"]);
    stage.look("n");
    assert_eq!((stage.happened(), stage.look_in), (Vec::new(), None));
}

#[test]
fn names_of_attachments_are_those_that_attachers_and_kubelets_make() {
    // By `printf hdn | sha256sum`: handle, driver, node, and nothing between them.
    let source = source::Source::of_name(&"kubernetes.io/csi/d^h".into()).unwrap();
    assert_eq!(
        source.attachment("n").unwrap(),
        "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"
    );
}

#[test]
fn each_pod_that_wanted_it_is_told() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.pod("q", "n", &["a"]);
    stage.look("n");
    stage.pod("late", "n", &["a"]);
    stage.is_attached("a", "n");
    stage.look("n");
    let told = stage.happened();
    let pods: Vec<&str> =
        told.iter().filter_map(|line| line.split_once(": Normal")).map(|(pod, _)| pod).collect();
    assert_eq!(pods, ["ns/p", "ns/q"], "one that came later was not waiting when it began");
}

#[test]
fn errors_are_told_and_tried_again_ever_later() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.look("n");
    stage.happened();
    stage.attacher("a", "n", |found| {
        let error = VolumeError { message: "broken".into(), ..VolumeError::default() };
        found.status.attach_error = Some(Box::new(error));
    });
    let told = "ns/p: Warning FailedAttachVolume AttachVolume.Attach failed for volume \"a\" : broken";
    for half_seconds in [1, 2, 4, 8, 16, 32, 64, 128, 244, 244] {
        stage.look("n");
        assert_eq!(stage.happened(), [told], "each try tells");
        let wait = Duration::from_millis(500) * half_seconds;
        assert_eq!(stage.look_in, Some(wait));
        stage.at += wait.saturating_sub(Duration::from_millis(1));
        stage.look("n");
        assert_eq!(stage.happened(), [""; 0]);
        stage.at += Duration::from_millis(1);
    }
    assert_eq!(stage.listed("n"), [""; 0]);
    stage.attacher("a", "n", |found| {
        found.status.attach_error = None;
        found.status.attached = true;
    });
    stage.look("n");
    assert_eq!(stage.happened(), [DONE, "n lists [a]"]);
}

#[test]
fn an_attacher_that_says_nothing_is_waited_for_two_minutes() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.look("n");
    stage.happened();
    stage.at = secs(120);
    stage.look("n");
    let error = format!("timed out waiting for external-attacher of {DRIVER} CSI driver to attach volume a");
    let told =
        format!("ns/p: Warning FailedAttachVolume AttachVolume.Attach failed for volume \"a\" : {error}");
    assert_eq!(stage.happened(), [told]);
    stage.at += secs(1);
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "what is there is waited for anew");
    assert_eq!(stage.look_in, Some(secs(120)));
}

#[test]
fn one_that_is_being_deleted_is_an_error_until_it_is_gone() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.made("a", "n", true);
    stage.attacher("a", "n", |found| found.metadata.deletion_timestamp = Time::from_seconds(1));
    stage.look("n");
    let error = "volume attachment is being deleted";
    let told =
        format!("ns/p: Warning FailedAttachVolume AttachVolume.Attach failed for volume \"a\" : {error}");
    assert_eq!(stage.happened(), [told]);
    stage.is_detached("a", "n");
    stage.at += secs(1);
    stage.look("n");
    assert_eq!(stage.happened(), ["create a on n"]);
}

#[test]
fn a_create_that_is_refused_is_told_and_tried_again() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.refused = vec!["create"];
    stage.look("n");
    let error = "kubernetes.io/csi: attacher.Attach failed: no";
    let told =
        format!("ns/p: Warning FailedAttachVolume AttachVolume.Attach failed for volume \"a\" : {error}");
    assert_eq!(stage.happened(), ["create is refused", told.as_str()]);
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "not at once");
    stage.refused.clear();
    stage.at += Duration::from_millis(500);
    stage.look("n");
    assert_eq!(stage.happened(), ["create a on n"]);
    assert_eq!(
        stage.series("storage_operation_duration_seconds"),
        [format!("false volume_attach fail-unknown kubernetes.io/csi:{DRIVER} 1")]
    );
}

#[test]
fn of_several_creates_one_may_be_refused() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("p", "n", &["a", "b"]);
    let key = Key::new("", "n");
    let plan = stage.planned("n", &[], &[]);
    let writes: Vec<Write> = plan.writes().cloned().collect();
    let (mut failures, mut effects) = (vec![refusal(&writes[1])], Vec::new());
    stage.write(&writes[0], &mut failures, &mut effects);
    let plan = stage.planned("n", &failures, &effects);
    assert!(plan.end, "it has a time of its own");
    stage.perform(&key, plan, &mut Vec::new(), &mut Vec::new());
    let told = stage.happened();
    assert!(
        told.len() == 2 && told[1].contains("for volume \"b\" : kubernetes.io/csi: attacher"),
        "{told:?}"
    );
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0], "the one is waited for, the other backs off");
    stage.is_attached("a", "n");
    stage.look("n");
    assert_eq!(stage.happened(), [DONE, "n lists [a]"]);
}

/// The pod of a create goes while the answer is waited for, which is lost in the end, or comes beside a refusal of another. What was
/// created is taken away again, and what was not is forgotten.
#[test]
fn what_was_created_for_a_pod_that_has_gone_meanwhile_goes_too() {
    for (is_there, is_answered) in [(true, false), (true, true), (false, false)] {
        let mut stage = stage(&["ReadWriteOnce"]);
        let key = Key::new("", "n");
        let plan = stage.planned("n", &[], &[]);
        let writes: Vec<Write> = plan.writes().cloned().collect();
        let (mut failures, mut effects) = (Vec::new(), Vec::new());
        if is_there {
            stage.write(&writes[0], &mut failures, &mut effects);
        }
        let mut failed = writes[0].clone();
        if is_answered {
            failed.key = Key::new("", "another");
        } else {
            effects.clear();
        }
        failures.push(refusal(&failed));
        stage.pod_gone("p");
        let plan = stage.planned("n", &failures, &effects);
        stage.perform(&key, plan, &mut Vec::new(), &mut Vec::new());
        stage.happened();
        stage.look("n");
        assert_eq!(stage.happened(), [""; 0], "it counts as mounted until the node says more");
        stage.changed("n", |_| {});
        stage.look("n");
        let expected: &[&str] = if is_there { &["read nodes", "delete a on n"] } else { &[] };
        assert_eq!(stage.happened(), expected, "there {is_there}, answered {is_answered}");
        if is_there {
            stage.is_detached("a", "n");
            stage.look("n");
        }
        let book = stage.world.books.book("n").unwrap();
        assert!(book.held.is_empty() && book.doubtful.is_empty(), "{book:?}");
    }
}

#[test]
fn disks_need_nobody_and_are_listed() {
    let mut stage = Stage::new();
    stage.node("n");
    let iscsi = Some(Box::new(Iscsi { target_portal: "t".into(), iqn: "i".into(), lun: 0 }));
    let source = PersistentVolumeSource { iscsi, ..PersistentVolumeSource::default() };
    stage.bound_to("a", &["ReadWriteOnce"], source);
    stage.pod("p", "n", &["a"]);
    stage.look("n");
    assert_eq!(stage.happened(), [DONE, "n lists [kubernetes.io/iscsi/t:i:0]"]);
    stage.pod_gone("p");
    stage.changed("n", |_| {});
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []"]);
    assert!(stage.view("n").book.held.is_empty());
}

#[test]
fn drivers_may_need_no_attaching() {
    let mut stage = stage(&["ReadWriteOnce"]);
    let with = |required| {
        let mut driver = CsiDriver::default();
        driver.metadata.name = DRIVER.into();
        driver.spec.attach_required = required;
        driver
    };
    put(stage.world.drivers.store(), with(Some(false)));
    stage.look("n");
    assert_eq!(stage.happened(), [""; 0]);
    put(stage.world.drivers.store(), with(None));
    stage.look("n");
    assert_eq!(stage.happened(), ["create a on n"], "it is required if it is not said");
    stage.is_attached("a", "n");
    stage.look("n");
    stage.uses("n", &[]);
    stage.happened();
    put(stage.world.drivers.store(), with(Some(false)));
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"], "what was wanted is wanted no more");
}

#[test]
fn what_is_for_one_node_waits_for_the_other() {
    let mut stage = Stage::running("a", "n");
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("m");
    let told = "ns/q: Warning FailedAttachVolume Multi-Attach error for volume \"a\" Volume is already used by pod(s) p";
    assert_eq!(stage.happened(), [told]);
    stage.pod("r", "m", &["a"]);
    stage.look("m");
    assert_eq!(stage.happened(), [""; 0], "it is told once");
    stage.pod_gone("p");
    stage.uses("n", &[]);
    stage.look("n");
    assert_eq!(stage.happened(), ["n lists []", "delete a on n"]);
    stage.look("m");
    assert_eq!(stage.happened(), [""; 0], "it is still being detached");
    stage.is_detached("a", "n");
    // The other node need not be looked at first.
    stage.look("m");
    assert_eq!(stage.happened(), ["create a on m"]);
}

#[test]
fn who_has_it_is_told_by_namespace() {
    let mut table = Vec::new();
    for (same, others) in [(0, 0), (2, 0), (0, 2), (1, 1)] {
        let mut stage = Stage::running("a", "n");
        stage.pod_gone("p");
        for at in 0..same {
            stage.pod(&format!("p{at}"), "n", &["a"]);
        }
        for at in 0..others {
            let mut theirs = claim("other", "a", "a");
            theirs.metadata.uid = "claim ns a".into();
            put(stage.world.claims.store(), theirs);
            put(stage.world.all_pods.store(), pod("other", &format!("o{at}"), "n", &["a"]));
        }
        stage.look("n");
        stage.node("m");
        stage.pod("q", "m", &["a"]);
        stage.happened();
        stage.look("m");
        let told = stage.happened().remove(0);
        table.push(told.split_once("\"a\" ").unwrap().1.to_owned());
    }
    assert_eq!(
        table,
        [
            "Volume is already exclusively attached to one node and can't be attached to another",
            "Volume is already used by pod(s) p0, p1",
            "Volume is already used by 2 pod(s) in different namespaces",
            "Volume is already used by pod(s) p0 and 1 pod(s) in different namespaces",
        ]
    );
}

#[test]
fn access_modes_say_whether_it_is_for_one_node() {
    for (modes, is_shared) in [
        (&["ReadWriteOnce"][..], false),
        (&["ReadWriteOncePod"], false),
        (&["ReadWriteMany"], true),
        (&["ReadOnlyMany", "ReadWriteOnce"], true),
        (&[], true),
    ] {
        let mut stage = stage(modes);
        stage.look("n");
        stage.is_attached("a", "n");
        stage.look("n");
        stage.node("m");
        stage.pod("q", "m", &["a"]);
        stage.happened();
        stage.look("m");
        let is_asked = stage.happened().contains(&"create a on m".to_owned());
        assert_eq!(is_asked, is_shared, "{modes:?}");
    }
}

#[test]
fn two_nodes_never_ask_for_one_volume() {
    let mut stage = stage(&["ReadWriteOnce"]);
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("n");
    stage.look("m");
    assert_eq!(stage.happened(), ["create a on n"], "whoever is looked at first");
    stage.is_attached("a", "n");
    stage.look("m");
    let told = stage.happened();
    assert!(told.len() == 1 && told[0].contains("is already used by pod(s) p"), "{told:?}");
    // An attachment that is uncertain does not block.
    let mut stage = self::stage(&["ReadWriteOnce"]);
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("n");
    stage.at = secs(120);
    stage.look("n");
    stage.happened();
    stage.look("m");
    assert_eq!(stage.happened(), ["create a on m"]);
}

#[test]
fn pods_want_what_they_are_bound_to_and_no_more() {
    let asks = |change: &dyn Fn(&mut Stage)| {
        let mut stage = stage(&["ReadWriteOnce"]);
        change(&mut stage);
        stage.look("n");
        stage.happened() == ["create a on n"]
    };
    let with_claim = |change: &dyn Fn(&mut PersistentVolumeClaim)| {
        asks(&|stage| {
            let mut claim = claim("ns", "a", "a");
            change(&mut claim);
            put(stage.world.claims.store(), claim);
        })
    };
    assert!(asks(&|_| {}));
    assert!(!with_claim(&|claim| claim.status.phase = "Pending".into()), "not bound: no error");
    assert!(!with_claim(&|claim| claim.metadata.uid = "another".into()), "the volume is another's");
    assert!(!asks(&|stage| stage
        .changed("n", |node| node.metadata.annotations = coxswain_machinery::wire::Labels::default())));
    let with_pod = |change: &dyn Fn(&mut Pod)| {
        asks(&|stage| {
            let mut pod = pod("ns", "p", "n", &["a"]);
            change(&mut pod);
            put(stage.world.all_pods.store(), pod);
        })
    };
    assert!(!with_pod(&|pod| pod.spec.node_name = Str::EMPTY));
    assert!(!with_pod(&|pod| pod.status.phase = "Succeeded".into()));
    assert!(!with_pod(&|pod| pod.metadata.deletion_timestamp = Time::from_seconds(1)), "and nothing runs");
    assert!(with_pod(&|pod| {
        pod.metadata.deletion_timestamp = Time::from_seconds(1);
        pod.status.container_statuses = vec![ContainerStatus::default()];
    }));
}

#[test]
fn generic_ephemeral_claims_count_if_they_are_the_pods() {
    for is_owned in [true, false] {
        let mut stage = Stage::new();
        stage.node("n");
        stage.bound("p-scratch", &["ReadWriteOnce"]);
        let mut claim = claim("ns", "p-scratch", "p-scratch");
        if is_owned {
            let owner = OwnerReference {
                uid: "pod ns p".into(),
                controller: Some(true),
                ..OwnerReference::default()
            };
            claim.metadata.owner_references = vec![owner];
        }
        put(stage.world.claims.store(), claim);
        let mut pod = pod("ns", "p", "n", &[]);
        let ephemeral = PodClaimSource::Ephemeral(Raw::default());
        pod.claims = [PodClaim { volume: "scratch".into(), source: ephemeral }].into_iter().collect();
        put(stage.world.all_pods.store(), pod);
        stage.look("n");
        assert_eq!(stage.happened().len(), usize::from(is_owned));
    }
}

#[test]
fn what_is_wanted_and_attached_is_counted() {
    let mut stage = Stage::running("a", "n");
    stage.bound("b", &["ReadWriteOnce"]);
    stage.pod("q", "n", &["b"]);
    stage.look("n");
    let plugin = format!("kubernetes.io/csi:{DRIVER}");
    assert_eq!(
        stage.series("attachdetach_controller_total_volumes"),
        [format!("{plugin} actual_state_of_world 1"), format!("{plugin} desired_state_of_world 2")]
    );
    assert_eq!(stage.series("storage_count_attachable_volumes_in_use"), [format!("n {plugin} 2")]);
    assert_eq!(
        stage.series("storage_operation_duration_seconds"),
        [format!("false volume_attach success {plugin} 1")]
    );
}

#[test]
fn it_is_said_what_a_volume_waits_for() {
    let mut stage = stage(&["ReadWriteOnce"]);
    let said = |stage: &Stage, node: &str| Controller::reasons(&stage.view(node), Timestamp::UNIX_EPOCH);
    assert_eq!(said(&stage, "n"), ["Volume a is needed by a pod and is attached next."]);
    stage.look("n");
    stage.at = secs(20);
    assert_eq!(
        said(&stage, "n"),
        ["Volume a is being attached; the controller waits for the CSI attacher for at most 1m 40s."]
    );
    stage.is_attached("a", "n");
    stage.look("n");
    assert_eq!(said(&stage, "n"), ["Volume a is attached."]);
    stage.node("m");
    stage.pod("q", "m", &["a"]);
    stage.look("m");
    assert_eq!(
        said(&stage, "m"),
        ["Volume a can be attached to one node only; the attach waits until the volume is detached from n."]
    );
    stage.node("idle");
    assert_eq!(said(&stage, "idle"), ["No volume is attached to this node, and no pod needs one."]);
}

//! Whole commands: from the command line over TLS to a replica and back to the screen.

use super::server::*;

#[tokio::test]
async fn look() {
    let replica = Replica::start().await;
    for line in [
        &["controllers"][..],
        &["controllers", "-o", "wide"],
        &["controller", "deployment"],
        &["disable", "deployment", "--for", "30m", "--reason", "x"],
        &["enable", "nothing"],
        &["leader"],
        &["queues"],
        &["queue", "deployment"],
        &["sync", "deployment", "default/web"],
        &["explain", "deploy", "default/web"],
        &["explain", "deploy", "web"],
        &["explain", "po", "default/web"],
        &["step-down", "--dry-run"],
        &["disable", "*"],
        &["enable", "bundle-controller"],
        &["disable", "deployment", "--for", "1ms"],
        &["controler"],
        &["help"],
        &["events"],
        &["leader", "-o", "json"],
        &["controller", "deployment", "-o", "yaml"],
        &["version"],
        &["help", "events"],
    ] {
        let ran = replica.run(line).await;
        println!("$ coxswain {}\n{}{}[{:?}]\n", line.join(" "), ran.out, ran.err, ran.exit);
    }
}

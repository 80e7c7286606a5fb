//! Measurements of the system: `cargo run --release --example bench -- --help`.

mod acknowledgements;
mod device_frames;
mod many_workers;
mod overhead;
mod virtual_fleet;

use clap::Parser;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

#[derive(Parser)]
enum Bench {
    Acknowledgements(acknowledgements::Options),
    DeviceFrames(device_frames::Options),
    ManyWorkers(many_workers::Options),
    UnderAttack(many_workers::AttackOptions),
    #[command(hide = true)]
    Attacker(many_workers::Attacker),
    Overhead(overhead::Options),
    VirtualFleet(virtual_fleet::Options),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match Bench::parse() {
        Bench::Acknowledgements(options) => acknowledgements::run(&options).await,
        Bench::DeviceFrames(options) => device_frames::run(options),
        Bench::ManyWorkers(options) => many_workers::run(&options).await,
        Bench::UnderAttack(options) => many_workers::under_attack(&options).await,
        Bench::Attacker(options) => many_workers::attack(&options).await,
        Bench::Overhead(options) => overhead::run(&options),
        Bench::VirtualFleet(options) => virtual_fleet::run(&options),
    }
}

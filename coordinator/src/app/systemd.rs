//! Messages to systemd, which do nothing if it did not start this program.

use std::sync::{Arc, OnceLock};

use sd_notify::{
    NotifyState::{self, Ready, Status, Watchdog},
    notify, watchdog_enabled,
};
use tokio::time::sleep;

use crate::driver::DriverHandle;

/// The service of this program. The watchdog hears from it twice in its interval: once there is a
/// driver, only while that answers.
pub(super) struct Systemd(Arc<OnceLock<DriverHandle>>);

impl Systemd {
    pub(super) fn start() -> Self {
        let driver = Arc::<OnceLock<DriverHandle>>::default();
        if let Some(limit) = watchdog_enabled() {
            let driver = Arc::clone(&driver);
            tokio::spawn(async move {
                loop {
                    if let Some(driver) = driver.get()
                        && driver.runs().await.is_err()
                    {
                        return;
                    }
                    send(&[Watchdog]);
                    sleep(limit / 2).await;
                }
            });
        }
        Self(driver)
    }

    pub(super) fn serves(&self, driver: &DriverHandle) {
        self.0.get_or_init(|| driver.clone());
        send(&[Ready, Status("serves runs")]);
    }
}

pub(super) fn stands_by(leader: &str) {
    send(&[Ready, Status(&format!("standby of {leader}"))]);
}

fn send(message: &[NotifyState<'_>]) {
    if let Err(why) = notify(message) {
        tracing::warn!("systemd does not receive messages: {why}");
    }
}

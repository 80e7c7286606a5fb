//! Restoring every run of a store.

use super::{Driver, DriverError};
use crate::store::{StoredRun, plan_of};

impl Driver {
    pub(super) fn restore(&mut self) -> Result<(), DriverError> {
        for StoredRun { manifest, state } in self.store.runs()? {
            let plan = plan_of(&manifest).map_err(crate::store::StoreError::from)?;
            self.scheduler.add_run(&manifest, plan, state);
            let scheduler = &mut self.scheduler;
            self.store.scan(manifest.run, &mut |row| {
                scheduler.restore_task(manifest.run, row)
            })?;
        }
        self.scheduler.restored(self.clock.now());
        Ok(())
    }
}

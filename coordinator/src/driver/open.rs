//! Restoring every run of a store.

use super::{Driver, DriverError};
use crate::store::{StoredRun, plan_of};

impl Driver {
    pub(super) fn restore(&mut self) -> Result<(), DriverError> {
        self.scheduler.draw_by(self.store.secret());
        self.restore_trust()?;
        for StoredRun {
            manifest,
            state,
            recheck,
            elapsed_ms,
        } in self.store.runs()?
        {
            let plan = plan_of(&manifest).map_err(crate::store::StoreError::from)?;
            self.scheduler.add_run(&manifest, plan, state);
            self.scheduler.restore_elapsed(manifest.run, elapsed_ms);
            if let Some(recheck) = recheck {
                self.scheduler.restore_recheck(manifest.run, recheck);
            }
            let scheduler = &mut self.scheduler;
            self.store.scan(manifest.run, &mut |row| {
                scheduler.restore_task(manifest.run, row)
            })?;
        }
        self.scheduler.restored(self.clock.now());
        Ok(())
    }

    fn restore_trust(&mut self) -> Result<(), DriverError> {
        for record in self.store.trust()? {
            self.scheduler.restore_trust(&record);
        }
        Ok(())
    }
}

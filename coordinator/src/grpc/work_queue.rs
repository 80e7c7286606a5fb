//! The service that workers call.

use common::sync::SyncRequest;
use proto::v1::{self, work_queue_server::WorkQueue};
use tonic::{Request, Response, Status};

use crate::{doors::Principal, driver::DriverHandle};

pub(super) struct WorkQueueService {
    pub(super) driver: DriverHandle,
}

#[tonic::async_trait]
impl WorkQueue for WorkQueueService {
    async fn sync(
        &self,
        request: Request<v1::SyncRequest>,
    ) -> Result<Response<v1::SyncResponse>, Status> {
        let principal = request.extensions().get::<Principal>();
        let token = principal.and_then(Principal::name).cloned();
        let request = SyncRequest::try_from(request.into_inner())?;
        let reply = self.driver.sync(token, request).await?;
        Ok(Response::new(reply.into()))
    }
}

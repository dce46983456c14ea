// Package push is the leader's duty towards its pool's resources: it brings what its replicas have into the
// coordinator's mirror, and declares in the Lease leader-informer-sync which resources are kept complete there.
//
// Pusher.Run does so for one term. Each resource has a carrier: it asks where the mirror stands, follows its replica
// from there, and sends what comes in batches on one request, whose answer acknowledges each batch with a line while the
// request goes on. One batch is under way at a time; the next gathers meanwhile. Only a mirror that has nothing, or stands
// outside the replica's history, gets everything, in a request of its own. One more goroutine writes the Lease.
//
// Invariants:
//   - A request begins where the mirror says that it stands; whatever goes wrong, it is asked again before the next. So a
//     lost answer, a second leader or a coordinator that came back empty costs a question, and nothing is left out.
//   - Nothing is sent unless the term is valid at that moment, and a batch that is under way breaks off when it no longer
//     is: the mirror takes it whole or not at all.
//   - A resource is declared only while its replica is fed by the cloud, the mirror has acknowledged all that the
//     replica had when its carrier began, nothing has waited for an acknowledgement for more than a few seconds, and the
//     mirror itself still says so.
//   - Run returns as soon as its context ends, with every goroutine that it started, and sends nothing more.
//
// A request for each batch was the alternative. At the rate of a rolling update nearly every change is a batch, and the
// request around it costs more than twice what the change does.
package push

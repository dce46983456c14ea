// Package endpoints shows EndpointSlices and Endpoints as the pool knows them while the cloud can't be asked: endpoints that
// follow the Pods. A Pod of the pool that is not ready is not ready there, one that came back with another address has that
// address, and one that is gone is gone. All others stay as the cloud had them.
//
// Known is what the pool knows. What is shown is a pure function of that and of the object (Known.show); View is that function as
// a replica.View, which remembers what it has shown. Package presence finds out what is known.
//
// Invariants:
//   - An endpoint is changed only if its Pod is known by UID, and to be on the node that the endpoint names, or if that node is
//     known to be silent. No endpoint is ever added.
//   - Conditions are set as kube-controller-manager sets them: serving is whether the Pod is ready; ready is that, unless the Pod
//     is being deleted; a Service with publishNotReadyAddresses has all of its endpoints ready. A silent node's endpoints are not
//     serving, as if the cloud had said so of its Pods.
//   - What the cloud says of a Pod's deletion is never taken back.
//   - EndpointSlices of other controllers than Kubernetes' own, and endpoints without a Pod, are shown as they are.
//   - An object in which nothing changes is shown as the same bytes. A changed one keeps the fields that this program does not
//     know, except among the conditions of a changed endpoint.
//
// A look remembers each object that it has shown, by the bytes, and the next look takes over what no changed Pod is in. So a
// change costs as much as the objects that it touches. The alternative was to follow the slices once more and keep an index of
// all of their Pods: memory for what is needed during a cut alone.
package endpoints

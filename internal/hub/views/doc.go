// Package views has the views by which this node sees some objects differently from the cloud: service topology; for kubelet,
// the Service by which Pods find the API server (Master), and values of single ConfigMaps (ConfigMaps).
//
// Service topology: the annotation openyurt.io/topologyKeys keeps a Service's traffic near. The hub leaves the endpoints that
// are elsewhere out of the EndpointSlices and Endpoints that it shows. kube-proxy, CoreDNS and other clients need no change.
//
// The annotation has one of OpenYurt's values (none of them is edge.LabelNodePool):
//
//   - kubernetes.io/hostname: endpoints on this node.
//   - openyurt.io/nodepool: endpoints on the nodes of this node's pool. A node without a pool, or with one that the hub
//     does not know, counts as a pool of its own.
//   - kubernetes.io/zone: the same, as OpenYurt documents it. A node at the edge usually has no zone. If it were shown
//     everything, its traffic would go over the WAN, which the annotation is there to prevent.
//   - Anything else, a list of keys included, is no topology, as in OpenYurt. Kubernetes' old field of that name was a
//     list: it fell back from key to key if no endpoint of the Service matched. That depends on all slices of a Service;
//     a view sees one object at a time.
//
// An endpoint without a node is dropped where a topology applies, as in OpenYurt: nobody knows whether it is near. A slice
// with nothing left is shown empty, never as deleted. In Endpoints, addresses that are not ready are cut like the others,
// and a subset without an address is dropped. If nothing is near, nothing is shown: the user asked to stay near.
//
// Invariants:
//
//   - A state never changes. Two states in a row may show every object alike; a watch tells only what differs.
//   - Show never changes the bytes it is given. An object that loses nothing is shown as the same bytes. One that is cut
//     keeps fields that this program does not know.
//   - Only a change that may alter what is shown makes a new state. Other changes of a Service or a NodePool do not.
//
// All views read protobuf, which API servers answer for these kinds. What comes in JSON all the same is shown as the cloud has
// it, and the log says why, once of each resource. Then traffic leaves the node or the pool, and new Pods and kube-proxy go to
// the cloud past the hub. That is safe: a view of these never grants anything, and Pods then trust the cloud's authorities alone.
//
// The alternative was to decode into API types. It costs four times as much (BenchmarkShow), and drops fields of a newer
// API server.
//
// # Endpoints while the cloud can't be asked
//
// An EndpointsView shows EndpointSlices and Endpoints as the pool knows them while the cloud can't be asked: endpoints that
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
//
// # What is known of Pods
//
// A Follower finds out what the pool knows of its Pods and nodes while the cloud can't be asked, and has endpoints shown
// so.
//
// This node's Pods are as kubelet last said: to the stand-in, or, before the cut, to the cloud. Those of other nodes the
// coordinator at home tells (edge.PathPresence), and which nodes have fallen silent all coordinators that this hub reaches.
// Nothing of it is followed, or known, while the cloud is there.
//
// Invariants:
//   - What counts of a Pod is kubelet's last word. When the cloud says that a Pod is not ready because its node was not heard
//     from, that is no word of kubelet's: the one before it stays.
//   - Unknown is not silent. A node is silent if a coordinator has seen it renew, and then not for the grace period, and this
//     hub has reached all coordinators that it reaches for as long, and none hears the node: the way from a node to one of them
//     may be cut. Who is silent is so until one that is reached hears it.
//   - What a coordinator has told stays known when it goes or comes back empty, until the one that is there tells otherwise.
//   - When the cloud is back, what is known counts for settling longer: by then kubelets have told the cloud, and its own truth
//     shows the same. Meanwhile it follows kubelets' words, as before.
//
// One goroutine owns what is known. The coordinators' streams and the Services come from others.
//
// # How Pods come to a hub
//
// Entrance is how Pods come to a hub: it serves them at an address of the node, and has kubelet tell them where that is.
//
// kubelet tells Pods that start where the Service default/kubernetes is, and kube-proxy's kubeconfig says where the API server
// is. Both are shown to kubelet as the hub's address, but only while Pods can come there: a hub that follows its node's address
// says nothing before it has a certificate for that address. A hub that was given an address was also promised a certificate.
//
// An Entrance is made in two steps, as the certificate is asked for by the address, and what the Node says comes through what
// the certificate opens.
package views

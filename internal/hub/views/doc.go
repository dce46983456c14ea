// Package views has the views by which this node's programs see some objects differently from the cloud: service topology and,
// for kubelet, the Service by which Pods find the API server (Master) and values of single ConfigMaps (ConfigMaps).
//
// Service topology: the annotation openyurt.io/topologyKeys keeps a Service's traffic near. The hub shows its EndpointSlices and
// Endpoints without the endpoints that are elsewhere. kube-proxy, CoreDNS and other clients need no change.
//
// The annotation has one of OpenYurt's values (none of them is edge.LabelNodePool):
//
//   - kubernetes.io/hostname: endpoints on this node.
//   - openyurt.io/nodepool: endpoints on the nodes of this node's pool. If a node has no pool, or one that the hub does not know,
//     the node is a pool of its own.
//   - kubernetes.io/zone: the same as openyurt.io/nodepool, as OpenYurt documents it. A node at the edge usually has no zone. If
//     its programs saw all endpoints, their traffic would cross the WAN, which the annotation is there to prevent.
//   - Any other value, a list of keys included, means no topology, as in OpenYurt. Kubernetes' old field of that name was a list:
//     it fell back from key to key if no endpoint of the Service matched. That depends on all slices of a Service, but a view
//     sees one object at a time.
//
// Where a topology applies, a view drops an endpoint without a node, as OpenYurt does, because the endpoint may be far. It shows
// a slice with no endpoints left as empty, never as deleted. In Endpoints it treats addresses that are not ready like the others,
// and drops a subset without an address. If nothing is near, it shows nothing: the user asked to stay near.
//
// Invariants:
//
//   - A state never changes. Two successive states may show an object alike; a watch sends only differences.
//   - Show never changes the bytes it gets. It returns the same bytes for an object that loses nothing. A cut object keeps fields
//     that this program does not know.
//   - Only a change that may alter what is shown makes a new state; other changes of a Service or a NodePool do not.
//
// All views read protobuf, which API servers send for these kinds. If an object comes in JSON all the same, clients see it as the
// cloud has it, and the log says so, once for each resource. Then traffic leaves the node or the pool, and new Pods and
// kube-proxy bypass the hub and talk to the cloud. That is safe: these views never grant anything, and such Pods trust only the
// cloud's CAs.
//
// The alternative was to decode into API types. It costs four times as much (BenchmarkShow), and drops fields of a newer
// API server.
//
// # Endpoints while the cloud can't be asked
//
// While the cloud can't be asked, an EndpointsView shows EndpointSlices and Endpoints as the pool knows them: endpoints follow
// the Pods. If a Pod of the pool is not ready, has another address or is gone, so is its endpoint. All other endpoints stay as
// the cloud had them.
//
// Known holds the pool's knowledge, which Follower gathers. Known.show is a pure function of it and of the object. EndpointsView
// is that function as a replica.View, which remembers what it has shown.
//
// Invariants:
//   - An endpoint changes only for one of three reasons: its node is known to be silent; the pool knows its Pod, by UID and on
//     that node; or its node is this one and no longer has the Pod. No endpoint is ever added.
//   - Conditions follow kube-controller-manager's rules: serving is whether the Pod is ready; ready is serving, unless the Pod is
//     being deleted; a Service with publishNotReadyAddresses has all of its endpoints ready. A silent node's endpoints are not
//     serving, as if the cloud had marked its Pods as not ready.
//   - A Pod that the cloud shows as being deleted stays so.
//   - EndpointSlices of other controllers than Kubernetes' own, and endpoints without a Pod, are shown as they are.
//   - An object without a change is shown as the same bytes. A changed one keeps the fields that this program does not know,
//     except among the conditions of a changed endpoint.
//
// A look caches the result for each object, by the object's bytes. The next look reuses the results for all objects that contain
// no changed Pod. So a change costs as much as the objects that it affects. The alternative was to follow the slices a second
// time and keep an index of all their Pods: memory for something that is needed only during a cut.
//
// # What is known of Pods
//
// While the cloud can't be asked, a Follower finds out what the pool knows of its Pods and nodes, and passes it to the
// EndpointsView.
//
// For this node's Pods it takes kubelet's last status: from the stand-in or, before the cut, from the cloud. The coordinator at
// home tells it about other nodes' Pods (edge.PathState). All coordinators that this hub reaches tell it which nodes are
// silent. While the cloud is there, it follows and knows nothing.
//
// Invariants:
//   - kubelet's last status of a Pod counts. If the cloud marks a Pod as not ready because it lost contact with the node,
//     kubelet's earlier status stays.
//   - Unknown is not silent. A node becomes silent if three things hold: a coordinator saw it renew, and then not for the grace
//     period; this hub has reached its coordinators for as long; and none of these hears the node, because its way to one of them
//     may be cut. The node stays silent until a coordinator that this hub reaches hears it.
//   - A coordinator's statements stay known when it goes or comes back empty, until the coordinator that is there says otherwise.
//   - When the cloud is back, the pool's knowledge counts for the time settling longer: after that the kubelets have told the
//     cloud, and its own state shows the same. Meanwhile the knowledge still follows the kubelets.
//
// One goroutine owns the knowledge. Other goroutines read the coordinators' streams and the Services.
//
// # How Pods come to a hub
//
// Entrance lets Pods use the hub: it serves them at an address of the node, and makes kubelet tell them that address.
//
// kubelet tells Pods at their start where the Service default/kubernetes is, and kube-proxy's kubeconfig says where the API
// server is. Entrance shows kubelet the hub's address in both, but only while Pods can connect to it. A hub that follows its
// node's address does so only once it has a certificate for that address. A hub with a configured address does so at once,
// because its operator has promised a certificate.
//
// An Entrance is made in two steps. The hub requests its certificate for the node's address, but reads that address from the Node
// over connections that need the certificate.
package views

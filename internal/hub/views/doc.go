// Package views shows this node's programs some objects differently from the cloud. Service topology changes EndpointSlices and
// Endpoints. For kubelet, other views change the Service by which Pods find the API server (Master) and values of single
// ConfigMaps (ConfigMaps).
//
// Service topology: the annotation openyurt.io/topologyKeys keeps a Service's traffic near. The hub shows the Service's
// EndpointSlices and Endpoints without the endpoints that are not near. kube-proxy, CoreDNS and other clients need no change.
//
// The annotation has one of OpenYurt's values (openyurt.io/nodepool is not the label edge.LabelNodePool):
//
//   - kubernetes.io/hostname: endpoints on this node.
//   - openyurt.io/nodepool: endpoints on the nodes of this node's pool. If a node has no pool, or a pool that the hub does not
//     know, the node counts as a pool of its own.
//   - kubernetes.io/zone: the same as openyurt.io/nodepool, as OpenYurt documents it. A node at the edge usually has no zone.
//     If its programs therefore saw all endpoints, their traffic would cross the WAN, which the annotation is meant to prevent.
//   - Any other value means no topology, as in OpenYurt, even if it is a list of keys. In Kubernetes' former field of that name,
//     a list meant that traffic falls back from one key to the next if no endpoint matches. A view can't do that, because a
//     Service may have several slices, and a view sees one object at a time.
//
// Where a topology applies, a view drops an endpoint without a node, as OpenYurt does, because the endpoint may be far. If a
// slice has no endpoints left, the view shows an empty slice, never a deleted one. In Endpoints it treats addresses that are not
// ready like the others, and drops a subset without an address. If no endpoint is near, the view shows none, because the user
// asked to stay near.
//
// Invariants:
//
//   - A Topology's state never changes; changes make a new one. If two successive states show an object alike, a watch sends
//     nothing.
//   - Show never changes the bytes that it gets. It returns the same bytes for an object that loses nothing. An object with
//     dropped endpoints keeps the fields that this program does not know.
//   - Only a change that may alter what clients see makes a new state; other changes of a Service or a NodePool do not.
//
// All views read protobuf, which API servers send for these kinds. If an object comes in JSON all the same, clients see it as
// the cloud has it. Then traffic leaves the node or the pool, and new Pods and kube-proxy talk to the cloud and not to the hub.
// That is safe: these views never grant anything, and such Pods trust only the cloud's CAs.
//
// The alternative was to decode into API types. It costs four times as much (BenchmarkShow), and drops fields of a newer
// API server.
//
// # Endpoints while the cloud can't be asked
//
// While the cloud can't be asked, an EndpointsView shows EndpointSlices and Endpoints as the pool knows them. If a Pod of the
// pool is no longer ready, has a new address or is gone, its endpoint changes in the same way. All other endpoints stay as the
// cloud had them.
//
// Known holds the pool's knowledge, which Follower gathers. Known.show is a pure function of that knowledge and of the object.
// EndpointsView makes a replica.View of this function, and remembers its results.
//
// Invariants:
//   - An endpoint changes only for one of three reasons: its node is known to be silent; the pool knows its Pod, by UID and on
//     that node; or its node is this one and no longer has the Pod. No endpoint is ever added.
//   - Conditions follow kube-controller-manager's rules. serving is true if the Pod is ready. ready is the same, but false
//     while the Pod is being deleted. All endpoints of a Service with publishNotReadyAddresses are ready. A silent node's
//     endpoints are not serving, as if the cloud had marked their Pods as not ready.
//   - If the cloud shows a Pod as being deleted, the view does, too.
//   - The view does not change EndpointSlices of other controllers than Kubernetes' own, nor endpoints without a Pod.
//   - An object without a change is shown as the same bytes. A changed object keeps the fields that this program does not know,
//     except in the conditions of a changed endpoint.
//
// A look is the view with one state of the pool's knowledge. It caches its result for each object. If only known Pods have
// changed, the next look reuses the results for all objects without these Pods. Such a change costs as much as the objects that
// it affects. The alternative was to follow the slices a second time and keep an index of all their Pods. That takes memory all
// the time for something that is needed only during a cut.
//
// # What is known of Pods
//
// While the cloud can't be asked, a Follower finds out what the pool knows of its Pods and nodes, and passes that to the
// EndpointsView.
//
// For this node's Pods the Follower takes kubelet's last status. It comes from the stand-in, which takes kubelet's writes during
// the cut, or else from the cloud as of before the cut. The home coordinator tells the Follower about other nodes' Pods
// (edge.PathState). All coordinators that this hub reaches tell it which nodes are silent. While the cloud can be asked, the
// Follower follows nothing and knows nothing.
//
// Invariants:
//   - kubelet's last status of a Pod counts. If the cloud marks a Pod as not ready only because it lost contact with the node,
//     kubelet's status before that still counts.
//   - A node of which nothing is known is not silent. A node becomes silent if three things hold: a coordinator saw the node
//     renew its Lease, and then not for the grace period; this hub has reached its coordinators for as long; and none of these
//     coordinators hears the node. The word of one coordinator is not enough, because only the node's way to that one may be cut.
//     The node stays silent until a coordinator that this hub reaches hears it.
//   - A coordinator's statements still count after the coordinator goes or comes back empty, until the present coordinator says
//     otherwise.
//   - When the cloud is back, the pool's knowledge counts for some time longer (settling, longest), and still follows the
//     kubelets. By the end of that time the kubelets have told the cloud, and the cloud's own state shows the same.
//
// One goroutine owns the knowledge. Other goroutines read the coordinators' streams and the Services.
//
// # How Pods come to a hub
//
// Entrance lets Pods use the hub. It serves them at an address of the node, and makes kubelet tell them that address.
//
// When a Pod starts, kubelet tells it where the Service default/kubernetes is; kube-proxy's kubeconfig says where the API server
// is. While the hub has a certificate for its address, Entrance shows kubelet that address in both. A configured address is in
// the Service at once, because the operator has promised a certificate.
//
// An Entrance is made in two steps, because it and package identity need each other. The hub's certificate is requested for the
// Entrance's address. The Entrance reads that address from the Node, over connections that need the node's certificate.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - Follower: entered when the link to the cloud goes down; ends when the cloud has answered for settling and shows the same,
//     or for longest. (TestTheCloudTakesOver, TestTheCloudAgrees)
//   - round.healed: entered when the cloud answers after a cut; ends when the cloud is cut off again, or with the round.
//     (TestALinkThatFlaps)
//   - neighbour.silent: entered when a coordinator that is reached says that a node does not renew; ends when one that is reached
//     hears it, or with the cut. (TestASilentNode, TestSilentAtOneCoordinator)
//   - word.kept: entered when the cloud marks a Pod as not ready without having heard its kubelet; ends when kubelet is heard,
//     when the Pod is gone, or with the cut. (TestTheCloudTakesOver)
//   - facts.others: entered when home tells of a Pod of another node; ends when a coordinator says otherwise, or with the cut.
//     (TestACut, TestAnotherHome)
//   - firstWord: entered when a cut begins; ends when all reached coordinators have told of nodes, or when firstWord is over.
//     (TestSilentAtOneCoordinator)
//   - round.rested: entered when a look has ended; ends when restFor times its duration is over. (TestAStorm)
//   - Topology.complete: entered when all Services and the pool are known, before which all endpoints are shown; ends when the
//     hub does. (TestCopyThatIsFedLate)
//   - members.why: entered when the pool cannot be known; ends when its NodePool comes. (TestTopologyWithoutAPool,
//     TestTopologyFollowsTheCloud)
//   - Entrance.trouble: entered when the hub cannot listen at the node's address; ends when it can.
//     (TestPodsAreServedWhereTheNodeIs)
//   - Entrance.told: entered when the hub has a configured address, or the Node's address and a certificate for it; ends when
//     address or certificate is another, or gone. (TestPodsAreToldWhereTheHubIs)
package views

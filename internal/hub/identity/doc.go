// Package identity gets, keeps and renews the certificates by which a node is known: the client certificate that its
// hub shows to the cloud and to the coordinator, and the certificate that the hub shows to Pods.
//
// A new node begins with a bootstrap token, as kubeadm does, or with the certificate of its kubelet. It asks the
// cluster's own signers by CertificateSigningRequest, with a key that never leaves the node. When between 2/3 and 9/10
// of the certificate's life is over, it asks again, with that certificate. If the certificate has expired, it tries the
// other ways again, for as long as it takes.
//
// Files, all 0600, in a directory 0700 of their own:
//
//	ca.crt               the cloud's authorities, as discovered and followed; not when Config.CAFile gives them
//	ca.json              since when each of them is known, and for how long the cloud has not named it
//	client.pem           certificate and key of system:node:NAME
//	hub.pem              what Pods are served with: the certificate of openyurt:hub:NAME, the authorities that came with
//	                     it, and the key
//	client.request.key   the key of a request under way, so that a restart goes on with the request that it made
//	client.lock          held while a certificate is asked for and written
//
// Invariants: at every instruction a certificate file is the old one or the new one, whole; a signer's answer is
// written only if it belongs to the key, is for this node and this use, is valid by a clock that may be some minutes
// wrong, and the cloud has let the node in under its name with it; a bootstrap token is sent only to a server whose
// certificate is verified, by an authority that the token has signed and a hash pins; no log, error or status holds a key or
// a token; each certificate has at most one request under way, however many hubs share the directory, and another follows
// only if it was denied, forgotten or answered with rubbish; every goroutine ends with Run.
//
// The alternative was client-go's certificate manager with its FileStore. Its Stop returns at once (0.25 ms, with a
// rotation under way), so nobody can wait for what it started. It accepts a certificate for another name, or an expired
// one. Its store removes the link to the old file before the new one takes its place, syncs no directory and keeps
// every file that there ever was. Each try makes a new request with a new key, and these pile up where nobody approves
// them. It goes back to the bootstrap credentials only when the process restarts. Its errors go to the log, where no
// Status finds them. We kept client-go's typed clients, its parsing of kubeconfigs and keys, and roughly its rule of
// when to renew.
//
// # Whom to trust
//
// A TrustSet decides by which authorities a node verifies its cloud, while the cloud replaces them.
//
// A Set is a value. It hears what the cloud says its authorities are, over a connection that one of the Set's own verified, and
// what a person has put into a file of the node. It adds before it removes:
//
//   - What is named is added at once, beside the others. Whoever may say what the authorities are may add one: nobody can tell a
//     new authority from a false one but by who names it.
//   - What is no longer named stays. It goes when the cloud has not named it for Forget of asking, or when it has expired, and
//     only at an answer by a server that another authority verified.
//   - An answer removes nothing if it is empty, no PEM, too long, or does not name the authority that verified it.
//
// Time that nobody asked does not count, nor does a step of the clock: each answer adds at most a Step. So a node that was off,
// or cut off, or whose clock jumped, forgets nothing.
//
// The alternative was to take the cloud's bundle as it is. One wrong ConfigMap would then cut off every node at once, for good.
//
// # kubelet's certificate
//
// A KubeletFinder finds the certificate with which this node's kubelet serves, so that the pool's coordinator can know kubelet by
// it, whoever signed it. It looks into kubelet's files, and never asks at kubelet's port: any program of the node can hold that
// while kubelet restarts. It reads no key: where certificate and key are in one file, it stops between them.
//
// The files are read anew every few seconds, so a new certificate is found without anybody telling of it. They are not read when
// a heartbeat needs the answer: a heartbeat must not wait for a disk.
//
// The alternative was to have all kubelets signed by the cluster (serverTLSBootstrap). That is better where it is on, but
// kubeadm's default is another, and somebody has to approve each certificate.
//
// # The files
//
// A KeyDir keeps keys, certificates and tokens in a directory of their own: a file is the old one or the new one, whole,
// also after a power cut, and nobody but its owner may read or replace it.
package identity

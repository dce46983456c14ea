// Package identity gets, keeps and renews a node's certificates: the client certificate that its hub shows to the cloud and to
// the coordinator, and the serving certificate that the hub shows to Pods.
//
// A new node starts with a bootstrap token, as kubeadm does, or with its kubelet's certificate. The Manager asks the cluster's
// own signers by CertificateSigningRequest, with a key that never leaves the node. Between 2/3 and 9/10 of the certificate's life
// it renews the certificate, and authenticates with the present one. If that has expired, the Manager tries the token and
// kubelet's certificate again and again until one works.
//
// Files, all 0600, in a directory 0700 of their own:
//
//	ca.crt               the cloud's authorities, as discovered and followed; not used if Config.CAFile is set
//	ca.json              since when each authority is known, and for how long the cloud has not named it
//	client.pem           certificate and key of system:node:NAME
//	hub.pem              the serving certificate for Pods (openyurt:hub:NAME), the authorities that came with it, and
//	                     the key
//	*.request.key        client or hub: the key of a request under way, so that a restart continues with the same request
//	*.lock               client or serving: held while a certificate is requested and written; client also for ca.crt
//
// Invariants:
//   - At every instant a certificate file is the old one or the new one, whole.
//   - A signer's answer is written only if it belongs to the key, is for this node and this use, and is valid by a clock that may
//     be some minutes wrong. A new client certificate is written only after the cloud has accepted it.
//   - A bootstrap token is sent only to a server with a verified certificate. The authority that verifies it comes from a file on
//     the node, or from the cloud. In the latter case the authority must be signed with the token, and a hash must pin it.
//   - No log, error or status contains a key or a token.
//   - Each certificate has at most one request under way, however many hubs share the directory. Another request follows only if
//     the first was denied, was forgotten, or got a useless answer.
//   - Every goroutine ends with Run.
//
// The alternative was client-go's certificate manager with its FileStore, which has these faults:
//   - Its Stop returns at once (0.25 ms, with a rotation under way), so nobody can wait for its goroutines.
//   - It accepts a certificate for another name, or an expired one.
//   - Its store removes the link to the old file before the new one is in place, syncs no directory, and never deletes
//     old files.
//   - Each try makes a new request with a new key; these pile up where nobody approves them.
//   - It returns to the bootstrap credentials only when the process restarts.
//   - Its errors go to the log, where no Status finds them.
//
// We kept client-go's typed clients, its parsing of kubeconfigs and keys, and roughly its rule of when to renew.
//
// # Which authorities to trust
//
// A TrustSet decides by which authorities a node verifies its cloud while the cloud replaces them. It is a value with two inputs.
// One input is the cloud's list of authorities, read from a server that the set has verified. The other is files that a person
// has put on the node. A TrustSet adds at once and removes late:
//
//   - A newly named authority is added beside the others. A node cannot tell a new authority from a false one, so whoever may
//     publish the list may add an authority.
//   - An authority that is no longer named stays until it has expired, or until the cloud's answers have not named it for
//     ForgetNote. The answer that removes it must come from a server that another authority verified.
//   - An answer removes nothing if it is empty, is not PEM, is too long, or does not name the authority that verified its
//     server.
//
// Only time covered by answers counts towards ForgetNote: each answer adds at most a TrustStep. So a node that was off, or cut
// off, or whose clock jumped, forgets no authority.
//
// The alternative was to take the cloud's bundle as it is. One wrong ConfigMap would then cut off every node at once, for good.
//
// # kubelet's certificate
//
// A KubeletFinder finds the certificate with which this node's kubelet serves. The pool's coordinator verifies kubelet by that
// certificate, whoever signed it. The finder reads kubelet's files and never asks kubelet's port, because any program of the node
// can take that port while kubelet restarts. It reads no key: if certificate and key are in one file, the finder stops reading
// between them.
//
// It reads the files every few seconds, because kubelet tells nobody of a new certificate. Heartbeats use the last result,
// because a heartbeat must not wait for a disk.
//
// The alternative was to have the cluster sign all kubelets' certificates (serverTLSBootstrap). That is better where it is on,
// but it is off in kubeadm's default, and somebody has to approve each certificate.
//
// # The files
//
// A KeyDir keeps keys, certificates and tokens in a directory of their own. A file is the old one or the new one, whole, even
// after a power cut. Only its owner may read or replace it.
//
// # States
//
// An event enters each state; an event or a time ends it. A time is named by its constant, and each item names a test.
//
//   - State.Problem: entered when a certificate cannot be got; ends when it is got, or not needed; it is tried again when
//     pauseUnreachable or pauseAnswered is over at the latest. (TestNeverApproved, TestExpiredWhileCut)
//   - State.Waiting: entered when a request waits for approval; ends when it is signed, denied or useless. (TestNeverApproved)
//   - rotation.pair: entered when a certificate is read or issued; ends when another one is read or issued. A file that cannot
//     be read for a while does not end it. (TestBrokenDisk, TestRenewal)
//   - Authorities.Problem: entered when the cloud's authorities cannot be asked for, or are not believed; ends when the cloud
//     names them; the hub asks again when askAgain is over. (TestCutOffMeanwhile, TestLyingAnswers)
//   - Authority.Missing: entered when the cloud does not name an authority; ends when the cloud names that authority again, or
//     when ForgetNote is over and the authority is removed. (TestAuthorityChanges, TestKill)
//   - KubeletFinder.found: entered when kubelet's files are read; ends when lookEvery is over, and they are read again.
//     (TestAChangeIsFollowed)
package identity

package kit

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"yurtcoordinator/lab"
)

// CoordinatorSays returns what the pool's coordinator has logged: its audit lines, and the other lines.
func (pool Pool) CoordinatorSays() (audit []auditv1.Event, others []string) {
	t := pool.t
	path, err := t.Lab.Log(pool.CoordinatorNode(), string(lab.Coordinator))
	t.Must(err)
	content, err := os.ReadFile(path)
	t.Must(err)
	for line := range strings.Lines(string(content)) {
		i := strings.Index(line, `{"kind":"Event","apiVersion":"audit.k8s.io/v1"`) // in a container's log, a time is before it
		if i < 0 {
			others = append(others, line)
			continue
		}
		var e auditv1.Event
		if json.Unmarshal([]byte(line[i:]), &e) == nil { // the last line may still be written
			audit = append(audit, e)
		}
	}
	return audit, others
}

// Audited returns an error unless the coordinator's audit log has a line about a user, known by a certificate, and a path. With
// a reason, the line must say that the request was refused for it; with an empty one, that a stream was let in.
func (pool Pool) Audited(name, path, why string) error {
	lines, _ := pool.CoordinatorSays()
	if !slices.ContainsFunc(lines, func(e auditv1.Event) bool {
		ids := e.User.Extra[user.CredentialIDKey]
		return e.User.Username == name && len(ids) == 1 && strings.HasPrefix(ids[0], "X509SHA256=") &&
			strings.Contains(e.RequestURI, path) && (e.ResponseStatus.Code >= 400) == (why != "") &&
			strings.Contains(e.ResponseStatus.Message, why)
	}) {
		return fmt.Errorf("none of %d audit lines has %s, %s, %q", len(lines), name, path, why)
	}
	return nil
}

// CredentialID returns the name of a certificate in audit lines, and among denied users.
func CredentialID(certificate []byte) string {
	block, _ := pem.Decode(certificate)
	return fmt.Sprintf("X509SHA256=%x", sha256.Sum256(block.Bytes))
}

package front

import (
	"yurtcoordinator/internal/edge"
	"yurtcoordinator/internal/hub/cache"
	"yurtcoordinator/internal/hub/identity"
)

// AddToReport adds the states of the disk and of the certificates to a hub's report for its pool. nil states add nothing.
func AddToReport(r edge.HubReport, d *cache.DiskStatus, id *identity.Status) edge.HubReport {
	if d != nil && d.Error != "" {
		r.Troubles = append(r.Troubles, edge.TroubleDisk)
	}
	if d != nil && d.Corrupt != "" {
		r.Troubles = append(r.Troubles, edge.TroubleDamage)
	}
	if id == nil {
		return r
	}
	r.Certificates = map[string]edge.Life{}
	for kind, s := range map[string]identity.State{edge.CertificateClient: id.Client, edge.CertificateServing: id.Serving} {
		if !s.NotAfter.IsZero() {
			r.Certificates[kind] = edge.Life{From: s.NotBefore.Unix(), Until: s.NotAfter.Unix()}
		}
	}
	return r
}

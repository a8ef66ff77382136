import { decides, SNI, spiffe } from './testing/decisions.ts';

decides('caller', [
  {
    what: 'by SNI',
    shows: ['acmeCallers', 'kube-apiserver'],
    evidence: SNI,
    is: 'acme/caller/kube-apiserver',
    rule: 'acme.yaml: callers[0].certificates',
  },
  { what: 'by issuer', shows: ['acmeCallers', 'kube-apiserver'], is: 'acme/caller/kube-apiserver' },
  {
    what: 'by SPIFFE ID',
    shows: ['program', '', spiffe('tenant/beta/caller/api')],
    is: 'beta/caller/api',
  },
  {
    what: "by its tenant's socket",
    evidence: { tenant: 'acme', unixSocket: '/run/acme.sock' },
    is: 'acme/caller/local',
    rule: 'acme.yaml: callers[1].unixSocket',
  },
  {
    what: "by its tenant's port",
    evidence: { tenant: 'open', port: 9003 },
    is: 'open/caller/port-9003',
    rule: 'open.yaml: callers[0].port',
  },
  {
    what: "by its tenant's port, and certificate",
    shows: ['acmeCallers', 'kube-apiserver'],
    evidence: { tenant: 'acme', port: 9001 },
    is: 'acme/caller/kube-apiserver',
  },

  {
    what: "by a port whose tenant lists callers' certificates",
    evidence: { tenant: 'acme', port: 9001 },
    is: /has not proven its tenant/,
    rule: 'acme.yaml: callers',
  },
  {
    what: 'with another name',
    shows: ['acmeCallers', 'kubelet'],
    is: /its name kubelet is not among the names allowed/,
    rule: 'acme.yaml: callers[0].certificates',
  },
  {
    what: "with an agent's certificate",
    shows: ['acme', 'kube-apiserver'],
    is: /not a trusted authority/,
  },
  {
    what: "with an agent's SPIFFE ID",
    shows: ['program', '', spiffe('tenant/beta/agent/e1')],
    is: /names the agent e1/,
  },
  {
    what: "of another tenant on a tenant's socket's SNI",
    shows: ['acmeCallers', 'kube-apiserver'],
    evidence: { serverName: 'x.beta.example' },
    is: /no SPIFFE ID|not a trusted authority/,
  },
  { what: 'by SNI alone', evidence: SNI, is: /has not proven its tenant/ },
  {
    what: 'that shows nothing',
    is: /the caller has not proven its tenant: it showed no client certificate: see callers/,
  },
  {
    what: 'on a socket that the file does not list',
    evidence: { tenant: 'acme', unixSocket: '/run/x.sock' },
    is: /has not proven/,
  },
]);

import type { DialErrorCode } from '@isthmus/tunnel';

/** What to do about a failed dial, by the name of its error (RFC 9209). */
const ADVICE: Readonly<Record<DialErrorCode, string>> = {
  connection_refused: 'the agent reached the machine, but nothing listens on that port: check the destination itself',
  connection_timeout:
    'the destination did not answer the agent: a firewall or network policy between them drops packets, or the machine is down',
  destination_ip_unroutable: "the agent's network has no route there: another agent must serve it, see isthmus explain",
  dns_error: "the agent's resolver does not know the name: resolve it in the agent's pod",
  dns_timeout: "the agent's resolver does not answer: check DNS in the agent's network",
  destination_ip_prohibited:
    "if the text names a rule of a tenant's policy, it is in the tenant's file; if it names --allow-destinations or --deny-destinations, these flags of the agent decide; otherwise a route or firewall on its machine forbids the dial",
  http_request_denied: 'the caller may not dial: the audit log says who it is',
  http_request_error: 'the request is malformed: write host:port, with IPv6 in brackets',
  destination_unavailable: 'no agent can take the dial: isthmus explain says why, isthmus agents lists the agents',
  connection_limit_reached:
    'a limit of the plane is reached: the text names it, isthmus status counts pending dials, isthmus tunnels --sort age shows the oldest tunnels',
  connection_terminated: 'the session was lost before the answer: isthmus hubs and isthmus agents show what is left',
  proxy_internal_error: "the plane itself failed: read the gateway's log, and run isthmus diag to collect a report",
};

export function adviceFor(code: string): string {
  return ADVICE[code as DialErrorCode] ?? "read the gateway's log";
}

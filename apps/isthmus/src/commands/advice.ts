import type { DialErrorCode } from '@isthmus/tunnel';

/** What to do about a failed dial, by the name of its error (RFC 9209). */
const ADVICE: Readonly<Record<DialErrorCode, string>> = {
  connection_refused: 'the agent reached the machine, and nothing listens on that port: look at the destination itself',
  connection_timeout:
    'the destination did not answer the agent: a firewall or network policy on the way from the agent, or the machine is down',
  destination_ip_unroutable: "the agent's network has no way there: another agent must serve it, see isthmus explain",
  dns_error: "the agent's resolver does not know the name: look it up from the agent's pod",
  dns_timeout: "the agent's resolver does not answer: look at DNS in the agent's network",
  destination_ip_prohibited:
    'the text names a rule of the agent, which its --allow-destinations lifts; without one, a route or firewall of its machine forbids it',
  http_request_denied: 'the caller may not dial: see who it is in the audit log',
  http_request_error: 'the request cannot be understood: write host:port, IPv6 in brackets',
  destination_unavailable: 'no agent can take it: isthmus explain says why, isthmus agents who there is',
  connection_limit_reached: 'a limit of the plane is reached: isthmus tunnels --sort age shows what holds it',
  connection_terminated: 'the session was lost before the answer: isthmus hubs and isthmus agents say what is left',
  proxy_internal_error: "the plane itself failed: see the gateway's log, and collect isthmus diag for a report",
};

export function adviceFor(code: string): string {
  return ADVICE[code as DialErrorCode] ?? 'see the log of the gateway';
}

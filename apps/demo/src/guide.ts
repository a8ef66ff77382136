import type { Trust } from '@isthmus/certificates/testing';
import type { Child } from './child.ts';
import type { Front, Layout, Part } from './layout.ts';
import type { Screen } from './screen.ts';

/**
 * Returns a command line to paste. `--noproxy ''` because NO_PROXY often lists 127.0.0.1; `-p` makes curl use CONNECT for a plain
 * http:// URL.
 */
export function curlLine(front: Front, { callers, caller }: Trust, destinationPort: number): string {
  const proxy = `--proxy https://127.0.0.1:${front.port} --noproxy ''`;
  const tls = `--proxy-cacert ${callers.cert} --proxy-cert ${caller.cert} --proxy-key ${caller.key}`;
  return `curl -sS -p ${proxy} ${tls} http://127.0.0.1:${destinationPort}/`;
}

/** Returns the file that an API server reads with --egress-selector-config-file. */
export function egressSelectorConfiguration({ fronts: [front] }: Layout): string {
  return `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: GRPC
    transport:
      uds:
        udsName: ${front.socket}
`;
}

/** A part, and the process that runs it. */
export interface Running {
  readonly part: Part;
  readonly child: Child;
}

export interface Guide {
  readonly layout: Layout;
  readonly running: readonly Running[];
  readonly trust: Trust;
  readonly egressFile: string;
  readonly destinationPort: number;
}

/** Prints what to do with the running plane. */
export function showGuide(screen: Screen, { layout, running, trust, egressFile, destinationPort }: Guide): void {
  screen.heading('\nDial through the plane: paste this into another terminal');
  for (const front of layout.fronts) screen.good(curlLine(front, trust, destinationPort));
  screen.heading(`\nFor an API server, --egress-selector-config-file=${egressFile}`);
  screen.line(egressSelectorConfiguration(layout).trimEnd());
  screen.heading('\nLook inside');
  const width = Math.max(...running.map(({ part }) => part.name.length));
  for (const { part, child } of running) screen.line(`${part.name.padEnd(width)}  ${places(part)}   pid ${child.pid}`);
  screen.heading('\nDials, as they happen (Ctrl-C drains and ends everything)');
}

function places({ healthPort, adminPort }: Part): string {
  const health = `http://127.0.0.1:${healthPort}`;
  return `metrics ${health}/metrics   readiness ${health}/readyz   admin 127.0.0.1:${adminPort}`;
}

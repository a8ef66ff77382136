import type { Trust } from '@isthmus/certificates/testing';
import type { Child } from './fleet.ts';
import type { Front, Layout, Part } from './layout.ts';

/** A part, and the process that runs it. */
export interface Running {
  readonly part: Part;
  readonly child: Child;
}

interface Guide {
  readonly layout: Layout;
  readonly running: readonly Running[];
  readonly trust: Trust;
  readonly egressFile: string;
  readonly destinationPort: number;
  readonly redis?: Child;
}

/** Prints what to do with the running plane. */
export function showGuide(screen: Screen, guide: Guide): void {
  const { layout, running, trust, egressFile, destinationPort, redis } = guide;
  screen.heading('\nDial through the plane: paste this into another terminal');
  for (const front of layout.fronts) screen.good(curlLine(front, trust, destinationPort));
  screen.heading(`\nFor an API server, --egress-selector-config-file=${egressFile}`);
  screen.line(egressSelectorConfiguration(layout).trimEnd());
  screen.heading('\nWatch it in a browser: the console of each server');
  for (const part of [...layout.fronts, ...layout.hubs]) screen.good(consoleOf(part));
  screen.heading('\nLook inside');
  for (const line of commandLines(layout, destinationPort)) screen.good(line);
  if (layout.hubs.length > 0) {
    screen.heading(
      '\nKill a hub under a download: paste this, and kill -9 the hubs meanwhile, one after the other. It goes on',
    );
    screen.good(downloadLine(layout.fronts[0], trust, destinationPort));
  }
  screen.heading('\nProcesses: end any of them with kill -9, and see what happens');
  const width = Math.max(...running.map(({ part }) => part.name.length), redis?.name.length ?? 0);
  for (const { part, child } of running) screen.line(`${part.name.padEnd(width)}  ${places(part)}   pid ${child.pid}`);
  if (redis) screen.line(`${redis.name.padEnd(width)}  redis://127.0.0.1:${layout.redisPort}   pid ${redis.pid}`);
  screen.heading('\nDials, as they happen (Ctrl-C drains and ends everything)');
}

/** Prints the demo's output: plain lines, with colours if the terminal supports them. */
export class Screen {
  readonly #write: (text: string) => void;
  readonly #colours: boolean;

  constructor(write: (text: string) => void, colours: boolean) {
    this.#write = write;
    this.#colours = colours;
  }

  static of(stream: NodeJS.WriteStream, env: NodeJS.ProcessEnv): Screen {
    return new Screen((text) => stream.write(text), stream.isTTY === true && !env.NO_COLOR && env.TERM !== 'dumb');
  }

  line(text = ''): void {
    this.#write(`${text}\n`);
  }

  heading(text: string): void {
    this.line(this.#styled('1', text));
  }

  good(text: string): void {
    this.line(this.#styled('32', text));
  }

  bad(text: string): void {
    this.line(this.#styled('31', text));
  }

  faint(text: string): void {
    this.line(this.#styled('2', text));
  }

  #styled(code: string, text: string): string {
    return this.#colours ? `\u001b[${code}m${text}\u001b[0m` : text;
  }
}

/**
 * Returns a command line to paste. `--noproxy ''` because NO_PROXY often lists 127.0.0.1; `-p` makes curl use CONNECT for a plain
 * http:// URL.
 */
function curlLine(front: Front, trust: Trust, destinationPort: number): string {
  return `curl -sS ${proxyOptions(front, trust)} http://127.0.0.1:${destinationPort}/`;
}

/** Returns a line that downloads for a minute, and shows how far it is. curl fails if a byte is missing. */
function downloadLine(front: Front, trust: Trust, destinationPort: number): string {
  return `curl ${proxyOptions(front, trust)} -o /dev/null http://127.0.0.1:${destinationPort}/download/60`;
}

function proxyOptions(front: Front, { callers, caller }: Trust): string {
  const proxy = `--proxy https://127.0.0.1:${front.port} --noproxy ''`;
  const tls = `--proxy-cacert ${callers.cert} --proxy-cert ${caller.cert} --proxy-key ${caller.key}`;
  return `-p ${proxy} ${tls}`;
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

/** Returns the address of the page for operators. */
function consoleOf({ adminPort }: Part): string {
  return `http://127.0.0.1:${adminPort}/console/`;
}

/** The operator's command line, asking this plane. */
function commandLines({ fronts: [front] }: Layout, destinationPort: number): string[] {
  const plane = `--address 127.0.0.1:${front.adminPort}`;
  const destination = `127.0.0.1:${destinationPort}`;
  const lines = [
    ['status', 'the members, and whether each is ready'],
    ['watch', 'dials, live'],
    [`dial ${destination}`, 'where does the time go?'],
    [`explain ${destination}`, 'through which agent, and why?'],
    ['check', 'problems that exist or will come soon'],
  ] as const;
  const commands = lines.map(([line]) => `npx isthmus ${line} ${plane}`);
  const width = Math.max(...commands.map((line) => line.length));
  return commands.map((line, index) => `${line.padEnd(width)}   # ${lines[index]?.[1]}`);
}

function places({ healthPort, adminPort }: Part): string {
  const health = `http://127.0.0.1:${healthPort}`;
  return `metrics ${health}/metrics   readiness ${health}/readyz   admin 127.0.0.1:${adminPort}`;
}

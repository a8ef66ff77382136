import { execFile } from 'node:child_process';
import type { Front, Result, Settings } from '../rig/load/messages.ts';

/** How long a run may take to open and close its tunnels, in milliseconds. */
const GRACE = 120_000;

/** Measures one work with planebench: a program in Go with the same works, figures and names of figures. */
export function planebench(path: string, settings: Settings): Promise<Result> {
  const { fronts, work, conns, windowMs, rate, groups } = settings;
  const pids = Object.entries(groups).flatMap(([name, all]) => all.map((pid) => `${name}=${pid}`));
  const args = [
    ...['--front', urlOf(fronts[0] as Front), '--work', work, '--conns', String(conns), '--json'],
    ...['--seconds', String(windowMs / 1000), '--rate', String(rate)],
    ...(pids.length > 0 ? ['--pids', pids.join(',')] : []),
  ];
  return new Promise((resolve) => {
    execFile(path, args, { timeout: windowMs + GRACE }, (error, stdout, stderr) => {
      if (error) resolve({ figures: {}, errors: { [stderr.trim() || error.message]: 1 } });
      else resolve(read(stdout));
    });
  });
}

function read(text: string): Result {
  const { figures, errors = {} } = JSON.parse(text) as Result & { readonly errors?: Result['errors'] };
  return { figures, errors };
}

function urlOf(front: Front): string {
  if (front.kind === 'direct') return 'direct';
  if (front.kind === 'forward') return `forward://127.0.0.1:${front.port}`;
  const { grpc, connect, mtls } = front.door;
  if (front.protocol === 'grpc') return `grpc-uds://${grpc.uds}`;
  if (front.protocol === 'connect') return `connect-uds://${connect.uds}`;
  const files = new URLSearchParams({ ...mtls.identity, ca: mtls.ca, 'server-name': 'localhost' });
  return `connect-tcp://127.0.0.1:${mtls.port}?${files}`;
}

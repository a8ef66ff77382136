import type { Definition } from '../command.ts';
import { agents } from './agents.ts';
import { certs } from './certs.ts';
import { check } from './check.ts';
import { completion } from './completion.ts';
import { config } from './config.ts';
import { diag } from './diag.ts';
import { dial } from './dial.ts';
import { drain } from './drain.ts';
import { explain } from './explain.ts';
import { hold } from './hold.ts';
import { hubs } from './hubs.ts';
import { kick } from './kick.ts';
import { logLevel } from './log-level.ts';
import { quarantine } from './quarantine.ts';
import { status } from './status.ts';
import { tenants } from './tenants.ts';
import { tunnels } from './tunnels.ts';
import { watch } from './watch.ts';

/** In the order of --help: inspect, ask, act, and the rest. */
export const COMMANDS: readonly Definition[] = [
  ...[status, tenants, agents, hubs, tunnels, watch],
  ...[explain, dial, check],
  ...[drain, kick, quarantine, hold],
  ...[config, logLevel, diag, certs, completion],
];

import type { Row } from '../row.ts';
import { agentRows } from './agents.ts';
import { allInOneRows } from './all-in-one.ts';
import { callerRows } from './callers.ts';
import { fairnessRows } from './fairness.ts';
import { gatewayRows } from './gateways.ts';
import { holdRows } from './hold.ts';
import { hubRows } from './hubs.ts';
import { halfOpenRows, linkRows, pathRows } from './links.ts';
import { machineRows } from './machine.ts';
import { registryRows } from './registry.ts';
import { rollRows } from './rolls.ts';
import { stallRows } from './stalls.ts';

/** Every fault, in the order of the table. */
export const ROWS: readonly Row[] = [
  ...hubRows,
  ...halfOpenRows,
  ...pathRows,
  ...linkRows,
  ...gatewayRows,
  ...holdRows,
  ...rollRows,
  ...agentRows,
  ...registryRows,
  ...callerRows,
  ...stallRows,
  ...fairnessRows,
  ...machineRows,
  ...allInOneRows,
];

/** One of each kind of fault, which continuous integration runs for each change. It runs all of them every night. */
export const EACH_KIND: readonly string[] = [
  ...['hub-kill', 'hub-stop', 'peer-link-half-open', 'gateway-kill', 'hold-kill', 'servers-apart-2'],
  ...['roll-hubs-live', 'roll-gateways', 'roll-agents-live', 'agent-kill', 'redis-kill'],
  ...['caller-kill-connect', 'readers-stall', 'fairness'],
];

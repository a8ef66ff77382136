import type { Row } from '../row.ts';
import { agentRows } from './agents.ts';
import { allInOneRows } from './all-in-one.ts';
import { callerRows } from './callers.ts';
import { fairnessRows } from './fairness.ts';
import { gatewayRows } from './gateways.ts';
import { halfOpenRows } from './half-open.ts';
import { holdRows } from './hold.ts';
import { hubRows } from './hubs.ts';
import { linkRows } from './links.ts';
import { machineRows } from './machine.ts';
import { registryRows } from './registry.ts';
import { rollRows } from './rolls.ts';
import { stallRows } from './stalls.ts';

/** Every fault, in the order of the table. */
export const ROWS: readonly Row[] = [
  ...hubRows,
  ...halfOpenRows,
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

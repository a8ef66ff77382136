import type { Row } from '../row.ts';
import { agentRows } from './agents.ts';
import { gatewayRows } from './gateways.ts';
import { halfOpenRows } from './half-open.ts';
import { hubRows } from './hubs.ts';
import { linkRows } from './links.ts';
import { registryRows } from './registry.ts';
import { rollRows } from './rolls.ts';

/** Every fault, in the order of the table. */
export const ROWS: readonly Row[] = [
  ...hubRows,
  ...halfOpenRows,
  ...linkRows,
  ...gatewayRows,
  ...rollRows,
  ...agentRows,
  ...registryRows,
];

import type { Row } from '../row.ts';
import { hubRows } from './hubs.ts';

/** Every fault, in the order of the table. */
export const ROWS: readonly Row[] = [...hubRows];

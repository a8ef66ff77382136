import type { Finding } from '@isthmus/findings';
import type { Agent, Plane } from '../model/plane.ts';
import type { Action } from '../parts/confirm.tsx';
import type { Settings } from '../rpc.ts';

/** What every view gets. */
export interface ViewProps {
  readonly plane: Plane;
  readonly agents: readonly Agent[];
  /** What is wrong, failures first. */
  readonly findings: readonly Finding[];
  readonly settings: Settings;
  /** What the page's address has behind the view. */
  readonly path: readonly string[];
  /** Opens the dialog of an action. */
  readonly ask: (action: Action) => void;
}

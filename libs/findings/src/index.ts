export { middleOf } from './clocks.ts';
export { FINDINGS } from './defaults.ts';
export { adviceFor, cutsIn, groupsOfCuts, OWN_HEALTH_PORT, ofDial } from './dials.ts';
export type {
  Dial,
  Evidence,
  Hub,
  Loss,
  Session,
  Status,
  Witness,
} from './evidence.ts';
export { judge } from './judge.ts';
export { type Difference, differencesOf } from './members.ts';
export { cutOff, lost, reachedBy, registryTodo, servedBy } from './reach.ts';
export {
  age,
  agentName,
  bytes,
  CHECKS,
  type CheckName,
  endText,
  type Finding,
  findingsIn,
  millis,
  plural,
  type Result,
  reportOf,
} from './result.ts';
export { sessionsIn, stateOfSessions } from './sessions.ts';

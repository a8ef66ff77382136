/** The enums that the console's page compares with: a bundler takes these alone, where a namespace brings every codec along. */
export { Admission, Candidate_Standing, DialState, Hub_Link, Notice_Kind, Role } from './gen/isthmus/admin/v1/admin.ts';

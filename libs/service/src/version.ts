/** The version of all programs: the one in package.json. */
export const VERSION = '0.1.0';

// The package is CommonJS with a member "default", which bundlers and Node.js give out in two ways.
import * as all from './node_modules/react-custom-scrollbars-2/lib/index.js';

export const Scrollbars = all.Scrollbars ?? all.default.Scrollbars;
export default Scrollbars;

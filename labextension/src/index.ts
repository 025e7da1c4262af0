/** The plugins of this extension, one per capability. */
import { dashboard } from './plugins/dashboard';
import { launcher } from './plugins/launcher';
import { model } from './plugins/model';
import { notebook } from './plugins/notebook';
import { notifier, relaunch } from './plugins/notifier';
import { sidebar } from './plugins/sidebar';
import { statusbar } from './plugins/statusbar';
import { tour } from './plugins/tour';

export default [model, sidebar, notebook, notifier, relaunch, launcher, statusbar, dashboard, tour];
export { IGpuShare } from './tokens';

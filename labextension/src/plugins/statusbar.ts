/** Total share and use in the status bar; a click shows the sidebar. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ITranslator } from '@jupyterlab/translation';

import { COMMANDS } from '../commands';
import { StatusItem } from '../statusItem';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';

export const statusbar: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:statusbar',
  description: 'My GPU share and use in the status bar.',
  autoStart: true,
  requires: [IGpuShare],
  optional: [IStatusBar, ITranslator], // Notebook 7 has no status bar
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    bar: IStatusBar | null,
    translator: ITranslator | null
  ) => {
    if (bar === null) {
      return;
    }
    const item = new StatusItem(
      gpushare,
      () => void app.commands.execute(COMMANDS.show),
      bundle(translator)
    );
    bar.registerStatusItem('jupyter-gpushare:status', { item, align: 'left', rank: 3 });
  }
};

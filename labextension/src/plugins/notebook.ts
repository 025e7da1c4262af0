/** The notebook's toolbar control, notices, commands and saved share. */
import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry, Notification } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { ACTIONS, actionCommand, addActionCommands, COMMANDS } from '../commands';
import { gpuIcon } from '../icon';
import { NoticeBanner } from '../notebook/banner';
import { GpuControl } from '../notebook/control';
import { SavedRequests } from '../notebook/savedRequest';
import { followSettings } from '../settings';
import { IGpuShare } from '../tokens';
import { bundle } from '../translation';
import { requestText } from '../format';

export const notebook: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpushare:notebook',
  description: "The GPU control in a notebook's toolbar, its notices, and its saved share.",
  autoStart: true,
  requires: [IGpuShare],
  optional: [
    INotebookTracker,
    IToolbarWidgetRegistry,
    ISettingRegistry,
    ITranslator,
    ICommandPalette
  ],
  activate: (
    app: JupyterFrontEnd,
    gpushare: IGpuShare,
    notebooks: INotebookTracker | null, // some pages of Notebook 7 have none
    toolbars: IToolbarWidgetRegistry | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null,
    palette: ICommandPalette | null
  ) => {
    if (notebooks === null) {
      return;
    }
    const trans = bundle(translator);
    const settings = followSettings(registry);
    const controls = new WeakMap<NotebookPanel, GpuControl>();
    toolbars?.addFactory<NotebookPanel>('Notebook', 'gpushare', panel => {
      const control = new GpuControl(gpushare, panel, trans);
      controls.set(panel, control);
      return control;
    });
    const savedRequests = new SavedRequests(gpushare, notebooks, () => settings().useRemembered);
    savedRequests.requested.connect((_, { panel, request }) =>
      Notification.info(
        trans.__(
          '%1: requested %2, the share saved in this notebook.',
          panel.title.label,
          requestText(request)
        ),
        {
          autoClose: 8000
        }
      )
    );
    notebooks.widgetAdded.connect((_, panel) => {
      panel.contentHeader.addWidget(
        new NoticeBanner(gpushare, panel, () => controls.get(panel)?.open(true), trans)
      );
      savedRequests.follow(panel);
    });

    addActionCommands(app, gpushare, notebooks, trans);
    app.commands.addCommand(COMMANDS.control, {
      label: trans.__("Request or Change This Notebook's GPU Share…"),
      icon: gpuIcon,
      isEnabled: () => notebooks.currentWidget !== null,
      execute: () =>
        notebooks.currentWidget !== null && controls.get(notebooks.currentWidget)?.toggle(),
      describedBy: { args: { type: 'object', properties: {} } }
    });
    const category = trans.__('GPU share');
    [COMMANDS.control, ...ACTIONS.map(actionCommand)].forEach(command =>
      palette?.addItem({ command, category })
    );
  }
};

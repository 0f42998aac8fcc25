//! A model with its labels as they are, for those who ask and those who change them.

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use polytag::data::{LabelChange, LabelSpace};
use polytag::method::LiveModel;

use crate::api::ApiError;

/// The labels of a model at some time.
pub(crate) struct View {
    pub(crate) space: LabelSpace,
    /// How many changes there were since it was fitted, as far as they matter still.
    pub(crate) changes: usize,
}

impl View {
    fn of(live: &LiveModel) -> Arc<View> {
        Arc::new(View { space: live.predictor().label_space().clone(), changes: live.changes() })
    }
}

/// A model that is asked and changed at the same time.
pub(crate) struct Live {
    /// What answers share and changes hold alone, perhaps for long: only threads that may wait touch it.
    model: Arc<RwLock<LiveModel>>,
    /// Its labels as they are since the last change, for everyone else.
    view: Mutex<Arc<View>>,
}

impl Live {
    pub(crate) fn new(model: LiveModel) -> Live {
        let view = Mutex::new(View::of(&model));
        Live { model: Arc::new(RwLock::new(model)), view }
    }

    /// The model, for whoever asks it.
    pub(crate) fn model(&self) -> &Arc<RwLock<LiveModel>> {
        &self.model
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, LiveModel> {
        self.model.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, LiveModel> {
        self.model.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// What whoever runs it should know, if that can be told at once.
    pub(crate) fn notice(&self) -> Option<String> {
        self.model.try_read().ok()?.predictor().notice()
    }

    /// Its labels as they are now.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows its labels as they are in `model`, and tells how they are then.
    pub(crate) fn show(&self, model: &LiveModel) -> Arc<View> {
        let view = View::of(model);
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&view);
        view
    }

    /// Makes the changes that `make` wants of its labels, and keeps them in its folder; what `told` says of them before
    /// anybody else can change them again.
    pub(crate) fn change<T>(
        &self,
        make: impl Fn(&LabelSpace) -> Result<Vec<LabelChange>, ApiError>,
        told: impl FnOnce(&LabelSpace, &[LabelChange]) -> T,
    ) -> Result<T, ApiError> {
        let mut model = self.write();
        let changes = make(model.predictor().label_space())?;
        model.change(&changes)?;
        let view = View::of(&model);
        let answer = told(&view.space, &changes);
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = view;
        Ok(answer)
    }
}
